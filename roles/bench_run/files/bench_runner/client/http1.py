"""An HTTP/1.1 response, fed read by read: each piece of the body keeps the time it arrived at."""

from __future__ import annotations

from bench_runner.client.tape import Tape

# A server that sends more than this before a header's end isn't speaking HTTP.
_MAX_HEAD_BYTES = 65536
_LAST_CHUNK = b"0\r\n\r\n"
_END = b"\r\n" + _LAST_CHUNK


class BrokenHttpError(Exception):
    """The bytes aren't a response that HTTP allows."""


class Response:
    """Status, headers and the body's pieces; `complete` once the response has ended as its framing says.

    The framing of a chunked body is taken apart late: while a stream runs, a read costs as little as it can.
    What looks like the end is taken for it, and proved by `settle`.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.complete = False
        self._pieces = Tape()
        self._reads = Tape()  # not taken apart yet
        self._late = True
        self._line_ended = False
        self._rest = b""
        self._chunked = False
        self._left: int | None = None  # bytes of the body or of the current chunk still to come
        self._in_trailers = False

    @property
    def keeps_alive(self) -> bool:
        return self.complete and self.headers.get("connection", "").lower() != "close"

    @property
    def until_close(self) -> bool:
        """Neither chunked nor with a length: only the connection's end ends the body."""
        return self.status is not None and not self._chunked and "content-length" not in self.headers

    @property
    def pieces(self) -> Tape:
        self.settle()
        return self._pieces

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._reads.size + self._pieces.size

    def add(self, data: bytes, at_ns: int) -> None:
        """Take a read. BrokenHttpError may be about an earlier one."""
        if not self._chunked or not self._late:
            self.feed(data, at_ns)
            return
        self._reads.append(at_ns, data)
        line_ended, self._line_ended = self._line_ended, data.endswith(b"\r\n")
        if not self._line_ended:
            self._late = len(data) > len(_END)  # else perhaps a part of the end
        elif data.endswith(_END) or (line_ended and data == _LAST_CHUNK):
            self.complete = True
        else:
            # A line end too many: trailers, or events with such line ends.
            self._late = len(data) > len(_END) and not data.endswith(b"\r\n\r\n")
        if not self._late:
            self.settle()

    def settle(self) -> None:
        """Take apart what has been added."""
        if not self._reads.size:
            return
        reads, self._reads = self._reads, Tape()
        ended, self.complete = self.complete, False
        for read in reads:
            self.feed(read.data, read.at_ns)
        if ended and not self.complete:
            raise BrokenHttpError("what looked like the last chunk was none")

    def pack(self) -> None:
        """Make small what is kept, once no more comes."""
        self._reads.pack()
        self._pieces.pack()

    def feed(self, data: bytes, at_ns: int) -> None:
        data = self._rest + data if self._rest else data
        self._rest = b""
        if self.status is None:
            data = self._take_head(data)
            if self.status is None:
                return
        if self._chunked:
            self._take_chunks(data, at_ns)
        elif self._left is not None:
            self._keep(data[: self._left], at_ns)
            self._left -= min(self._left, len(data))
            self.complete = self._left == 0
        else:
            self._keep(data, at_ns)

    def at_eof(self) -> None:
        """The connection ended; that completes only a body that has no other end."""
        if self.until_close:
            self.complete = True

    def body(self) -> bytes:
        return self.pieces.read()

    def _keep(self, data: bytes, at_ns: int) -> None:
        if data:
            self._pieces.append(at_ns, data)

    def _take_head(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _MAX_HEAD_BYTES:
                raise BrokenHttpError("no end of the headers")
            self._rest = data
            return b""
        head = data[:end].decode("latin-1").split("\r\n")
        version, _, rest = head[0].partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not code.isdigit():
            raise BrokenHttpError(f"no status line: {head[0][:60]!r}")
        if code.startswith("1"):  # an interim response: the real one follows
            return self._take_head(data[end + 4 :])
        for line in head[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.status = int(code)
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if not self._chunked and length is not None:
            if not length.isdigit():
                raise BrokenHttpError(f"content-length {length!r}")
            self._left = int(length)
            self.complete = self._left == 0
        return data[end + 4 :]

    def _take_chunks(self, data: bytes, at_ns: int) -> None:
        """Take whole chunks and parts of them: a piece of text must not wait for its chunk's end."""
        place = 0
        while place < len(data) and not self.complete:
            if self._left:
                part = data[place : place + self._left]
                self._keep(part, at_ns)
                self._left -= len(part)
                place += len(part)
                continue
            if self._left == 0:  # the line end that closes a chunk
                if data[place : place + 2] != b"\r\n"[: len(data) - place]:
                    raise BrokenHttpError(f"a chunk ends in {data[place : place + 2]!r}")
                if len(data) - place < 2:  # noqa: PLR2004 - CR LF
                    break
                place += 2
                self._left = None
                continue
            end = data.find(b"\r\n", place)
            if end < 0:
                break
            self._take_size_or_trailer(data[place:end])
            place = end + 2
        self._rest = data[place:] if not self.complete else b""

    def _take_size_or_trailer(self, line: bytes) -> None:
        if self._in_trailers:
            self.complete = not line
            return
        size = line.partition(b";")[0].strip()
        try:
            self._left = int(size, 16)
        except ValueError as exc:
            raise BrokenHttpError(f"chunk size {size[:20]!r}") from exc
        if self._left == 0:
            self._left = None
            self._in_trailers = True
