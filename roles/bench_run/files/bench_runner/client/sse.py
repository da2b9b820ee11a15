"""Server-sent events from the pieces of a body, each with the time its last byte arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench_runner.client.tape import Piece

_BOM = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True):
    """`data` stays bytes: a character cut over two reads is whole again by now, and JSON decodes bytes."""

    at_ns: int
    data: bytes
    event: bytes = b""


def events(pieces: Iterable[Piece]) -> Iterator[SseEvent]:
    """The stream's events in order. One that the stream's end cut off isn't an event: the standard's rule."""
    data: list[bytes] = []
    name = b""
    for at_ns, line in _lines(pieces):
        if not line:
            if data:
                yield SseEvent(at_ns, b"\n".join(data), name)
            data, name = [], b""
            continue
        if line.startswith(b":"):
            continue  # a comment, as servers send to keep a connection open
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field == b"error":  # llama.cpp once sent its errors as a field of their own
            data.append(value)
            name = b"error"


def _lines(pieces: Iterable[Piece]) -> Iterator[tuple[int, bytes]]:
    """Lines ended by LF, CR LF or CR. A CR at a read's end ends its line; an LF after it is then skipped."""
    rest = b""
    first = True
    after_cr = False
    for piece in pieces:
        text = piece.data
        if after_cr and text.startswith(b"\n"):
            text = text[1:]
        if not text:
            after_cr = False
            continue
        after_cr = text.endswith(b"\r")
        block = rest + text
        if first:
            if len(block) < len(_BOM) and _BOM.startswith(block):
                rest = block
                continue
            block = block.removeprefix(_BOM)
            first = False
        lines = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield piece.at_ns, line
