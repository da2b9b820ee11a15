"""A web server for tests that sends files by range and breaks in named ways."""

from __future__ import annotations

import contextlib
import fnmatch
import gzip
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import unquote, urlsplit

FAULTS = (
    "status",  # answers `status` with `headers`
    "loop",  # redirects to itself by way of another path
    "elsewhere",  # redirects to `target`
    "no_range",  # sends the whole file whatever was asked for
    "chunked",  # as above, in chunks of unknown total
    "wrong_offset",  # the part begins one byte later than asked
    "wrong_total",  # Content-Range speaks of a larger file
    "wrong_length",  # Content-Length is less than the part
    "longer",  # the whole file and `at` more bytes, without a length
    "reset",  # the connection is reset after `at` bytes
    "short",  # the connection is closed after `at` bytes
    "stall",  # nothing more after `at` bytes
    "slow_headers",  # a header that never ends
    "gzip",  # compressed, whatever was accepted
    "html",  # a page with status 200
    "no_http",  # another protocol
    "corrupt",  # one flipped byte
)
PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"


@dataclass
class Fault:
    """Applies to requests whose path matches; the first `after` of them go well, then `times` go wrong."""

    name: str
    path: str = "*"
    times: int = 10**9
    after: int = 0
    method: str = "GET"
    at: int = 0
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    target: str = ""
    seen: int = 0

    def __post_init__(self) -> None:
        if self.name not in FAULTS:
            raise ValueError(self.name)


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    port: int
    method: str
    path: str
    headers: dict[str, str]

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


class FaultyHandler(BaseHTTPRequestHandler):
    """Subclasses route; `send_bytes` sends what was found, unless a fault says otherwise."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60
    server: FaultyServer

    def log_message(self, *_: object) -> None:
        """The requests are kept, not printed."""

    def do_GET(self) -> None:
        fault = self.server.note(self)
        if fault and self.before(fault):
            return
        self.route(fault)

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def route(self, fault: Fault | None) -> None:
        raise NotImplementedError

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def before(self, fault: Fault) -> bool:
        """Faults that need no file."""
        if fault.name == "status":
            self.answer(fault.status, b"", fault.headers)
        elif fault.name == "loop":
            other = self.path.removesuffix("~") if self.path.endswith("~") else f"{self.path}~"
            self.answer(302, b"", {"Location": other})
        elif fault.name == "elsewhere":
            self.answer(302, b"", {"Location": fault.target})
        elif fault.name == "html":
            self.answer(200, PAGE, {"Content-Type": "text/html; charset=utf-8"})
        elif fault.name == "no_http":
            self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            self.close_connection = True
        elif fault.name == "slow_headers":
            self.drip()
        else:
            return False
        return True

    def drip(self) -> None:
        """A byte often enough for whoever waits for the next byte only."""
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        with contextlib.suppress(OSError):
            while not self.server.stopping.wait(0.05):
                self.wfile.write(b"z")

    def send_bytes(self, content: bytes, headers: dict[str, str], fault: Fault | None) -> None:
        name = fault.name if fault else ""
        size = len(content)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        start, end = 0, size
        if asked and name not in ("no_range", "chunked", "longer", "gzip"):
            start, end = int(asked[1]), min(int(asked[2] or size - 1) + 1, size)
            if start >= size:
                self.answer(416, b"", {"Content-Range": f"bytes */{size}"})
                return
        part = content[start:end]
        if name == "corrupt":
            part = part[:-1] + bytes([part[-1] ^ 1])
        headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
        if asked and name not in ("no_range", "chunked", "longer", "gzip"):
            shift, more = name == "wrong_offset", name == "wrong_total"
            headers["Content-Range"] = f"bytes {start + shift}-{end - 1}/{size + more}"
            status = 206
        else:
            status = 200
        self.send_body(status, part, headers, fault)

    def send_body(self, status: int, part: bytes, headers: dict[str, str], fault: Fault | None) -> None:
        name = fault.name if fault else ""
        if name == "gzip":
            self.answer(status, gzip.compress(part), {**headers, "Content-Encoding": "gzip"})
        elif name == "chunked":
            self.head(status, {**headers, "Transfer-Encoding": "chunked"})
            for at in range(0, len(part), 5000):
                piece = part[at : at + 5000]
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif name == "wrong_length":
            self.answer(status, part[:-5], headers)
        elif name == "longer" and fault:
            self.close_connection = True
            self.head(status, {**headers, "Connection": "close"})
            self.wfile.write(part + bytes(fault.at))
        elif name in ("reset", "short", "stall") and fault and self.command == "GET":
            self.head(status, {**headers, "Content-Length": str(len(part))})
            self.wfile.write(part[: fault.at])
            self.wfile.flush()
            self.close_connection = True
            if name == "stall":
                self.server.stopping.wait(30)
            elif name == "reset":
                time.sleep(0.05)  # a reset takes what was not read yet with it
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
        else:
            self.answer(status, part, headers)

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


class FaultyServer(ThreadingHTTPServer):
    """On a free port of the loopback; keeps every request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[FaultyHandler], port: int = 0) -> None:
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.stopping = threading.Event()
        self._noting = threading.Lock()
        super().__init__(("127.0.0.1", port), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()

    def note(self, handler: FaultyHandler) -> Fault | None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._noting:
            self.seen.append(Seen(self.server_port, handler.command, handler.path, headers))
            for fault in self.faults:
                if fault.method in (handler.command, "*") and fnmatch.fnmatch(handler.path, fault.path):
                    fault.seen += 1
                    if fault.after < fault.seen <= fault.after + fault.times:
                        return fault
        return None

    def handle_error(self, *_: object) -> None:
        """A client that goes away is what half of these tests are about."""


class FilesHandler(FaultyHandler):
    server: FilesServer

    def route(self, fault: Fault | None) -> None:
        content = self.server.files.get(unquote(urlsplit(self.path).path).lstrip("/"))
        if content is None:
            self.answer(404, b"<html>404 Not Found</html>", {"Content-Type": "text/html"})
        else:
            self.send_bytes(content, {}, fault)


class FilesServer(FaultyServer):
    """Paths and their contents."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(FilesHandler)
        self.files = files
