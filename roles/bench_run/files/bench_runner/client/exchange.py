"""One request and its response on an open socket, driven by the loop's callbacks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

from bench_runner.client.http1 import BrokenHttpError, Response

if TYPE_CHECKING:
    import asyncio
    import socket

    from bench_runner.client.receivers import Receiver

# A response may be this long, packed about a tenth of it; no answer of a model is.
# How long a reset may go unseen: libuv doesn't call a reader whose socket has an error and no data.
_LOOK_S = 0.25
_MAX_BODY_BYTES = 256 << 20


class Exchange(Struct, kw_only=True):
    """What happened on the wire. `fault` is a reason code where it didn't end as HTTP says."""

    sent_ns: int
    end_ns: int
    response: Response
    last_ns: int = 0  # the stamp of the last bytes
    reads: int = 0
    fault: str | None = None
    fault_detail: str = ""


class Running:
    """An exchange under way. No task switch lies between the kernel and the stamp of a read."""

    def __init__(self, sock: socket.socket, receiver: Receiver, loop: asyncio.AbstractEventLoop) -> None:
        self.sock = sock
        self.receiver = receiver
        self.loop = loop
        self.response = Response()
        self.reads = 0
        self.sent_ns = 0
        self.fault: tuple[str, str] | None = None
        self.done: asyncio.Future[None] = loop.create_future()
        self._last_ns = 0
        self._stall_ns = 0
        self._limit_ns = 0
        self._unsent: memoryview | None = None
        self._watch: asyncio.TimerHandle | None = None

    def start(self, request: bytes, *, stall_s: float, limit_s: float) -> None:
        """Send; what the socket has no room for follows when it has."""
        self._stall_ns, self._limit_ns = int(stall_s * 1e9), int(limit_s * 1e9)
        self._watch = self.loop.call_later(min(stall_s, limit_s, _LOOK_S), self._look)
        self.sent_ns = self._last_ns = time.monotonic_ns()
        try:
            sent = self.sock.send(request)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as exc:
            self.end("send_failed", sentence(exc))
            return
        if sent < len(request):
            self._unsent = memoryview(request)[sent:]
            self.loop.add_writer(self.sock.fileno(), self._writable)

    def readable(self) -> None:
        try:
            data, at_ns = self.receiver(self.sock)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self.end("reset", sentence(exc))
            return
        if not data:
            self._at_eof()
            return
        self.reads += 1
        self._last_ns = at_ns
        response = self.response
        try:
            response.add(data, at_ns)
        except BrokenHttpError as exc:
            self.end("broken_http", str(exc))
            return
        if response.complete:
            self.end()

    def end(self, code: str | None = None, detail: str = "") -> None:
        """The first end counts; one that was cancelled from outside still gives back what it holds."""
        if self._watch is not None:
            self._watch.cancel()
        if self._unsent is not None:
            self.loop.remove_writer(self.sock.fileno())
            self._unsent = None
        if self.done.done():
            return
        self.fault = (code, detail) if code else None
        self.done.set_result(None)

    def result(self) -> Exchange:
        """Once it is done. Bytes that were never looked at may still show that it wasn't HTTP."""
        end_ns = time.monotonic_ns()
        code, detail = self.fault or (None, "")
        if code:
            try:
                self.response.settle()
            except BrokenHttpError as exc:
                code, detail = "broken_http", str(exc)
        self.response.pack()
        return Exchange(
            sent_ns=self.sent_ns,
            end_ns=end_ns,
            response=self.response,
            last_ns=self._last_ns,
            reads=self.reads,
            fault=code,
            fault_detail=detail,
        )

    def _at_eof(self) -> None:
        try:
            self.response.settle()
        except BrokenHttpError as exc:
            self.end("broken_http", str(exc))
            return
        self.response.at_eof()
        if self.response.complete:
            self.end()
        else:
            before = "any answer" if self.response.status is None else "the body's end"
            self.end("truncated", f"the connection ended before {before}")

    def _writable(self) -> None:
        if self._unsent is None:
            return
        try:
            sent = self.sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self.end("send_failed", sentence(exc))
            return
        self._last_ns = time.monotonic_ns()
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self.loop.remove_writer(self.sock.fileno())
            self._unsent = None

    def _look(self) -> None:
        """End the exchange when nothing comes any more; else look again when that could be so."""
        now = time.monotonic_ns()
        if now - self._last_ns > _LOOK_S * 1e9:
            self.readable()
            if self.done.done():
                return
        quiet_left = self._stall_ns - (now - self._last_ns)
        time_left = self._limit_ns - (now - self.sent_ns)
        if quiet_left <= 0:
            self.end("stalled", f"no byte for {self._stall_ns / 1e9:g} s")
        elif time_left <= 0:
            self.end("timed_out", f"not ended after {self._limit_ns / 1e9:g} s")
        elif self.response.size > _MAX_BODY_BYTES:
            self.end("too_long", f"more than {_MAX_BODY_BYTES >> 20} MiB came")
        else:
            left_s = min(quiet_left, time_left) / 1e9 + 0.001
            self._watch = self.loop.call_later(min(left_s, _LOOK_S), self._look)


def sentence(exc: BaseException) -> str:
    return (getattr(exc, "strerror", None) or str(exc) or type(exc).__name__).lower()
