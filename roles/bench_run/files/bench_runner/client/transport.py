"""One request at a time over a kept connection, each read stamped as it is taken from the socket."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from bench_runner.client.http1 import BrokenHttpError, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

_READ_BYTES = 65536
_LOST_WHILE_IDLE = {"reset", "truncated", "send_failed"}


class Receiver(Protocol):
    """Takes what a socket has, with the time it came. How good that time is, is the receiver's matter."""

    stamps: str  # named in each result

    def __call__(self, sock: socket.socket) -> tuple[bytes, int]: ...


class ReadTimeReceiver:
    """The time at which this process read: late by as much as the process was busy."""

    stamps = "read_monotonic"

    def __call__(self, sock: socket.socket) -> tuple[bytes, int]:
        data = sock.recv(_READ_BYTES)
        at_ns = time.monotonic_ns()
        # Where a server leaves Nagle on (llama.cpp's does), a chunk waits until the last one is acknowledged,
        # with a delayed acknowledgement up to 40 ms. The kernel forgets this setting, so it's set each time.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data, at_ns


class Exchange(Struct, kw_only=True):
    """What happened on the wire. `fault` is a reason code where it didn't end as HTTP says."""

    sent_ns: int
    end_ns: int
    response: Response
    reads: int = 0
    fault: str | None = None
    fault_detail: str = ""


class Connection:
    """A client's connection: opened before the clock starts, reopened where the server closed it."""

    def __init__(
        self, host: str, port: int, receiver: Receiver, headers: Mapping[str, str] | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.receiver = receiver
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._socket: socket.socket | None = None
        self._used = False

    async def open(self, *, timeout_s: float = 10) -> None:
        if self._socket is not None and _is_idle(self._socket):
            return
        self.close()
        loop = asyncio.get_running_loop()
        family, kind, proto, _, address = (
            await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        )[0]
        sock = socket.socket(family, kind, proto)
        try:
            sock.settimeout(0)  # non-blocking, as the loop needs it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.wait_for(loop.sock_connect(sock, address), timeout_s)
        except BaseException:
            sock.close()
            raise
        self._socket = sock

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        stall_s: float,
        limit_s: float,
    ) -> Exchange:
        """Send `body`, take the whole response. Never raises for what a server does; the exchange says it."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n{self._headers}\r\n"
        ).encode()
        kept = self._used
        exchange = await self._once(head + body, stall_s, limit_s)
        if kept and exchange.fault in _LOST_WHILE_IDLE and not exchange.reads:
            # The server closed the kept connection just as we sent, as HTTP lets it: no answer, so ask again.
            exchange = await self._once(head + body, stall_s, limit_s)
        return exchange

    async def _once(self, request: bytes, stall_s: float, limit_s: float) -> Exchange:
        try:
            await self.open()
        except (OSError, asyncio.TimeoutError) as exc:
            now = time.monotonic_ns()
            code = "refused" if isinstance(exc, ConnectionRefusedError) else "connect_failed"
            return Exchange(
                sent_ns=now, end_ns=now, response=Response(), fault=code, fault_detail=_sentence(exc)
            )
        sock = self._socket
        if sock is None:  # open() has just set it
            raise RuntimeError("no socket after open")
        reader = _Reader(sock, self.receiver)
        try:
            exchange = await reader.exchange(request, stall_s=stall_s, limit_s=limit_s)
        except BaseException:
            self.close()
            raise
        self._used = True
        if not exchange.response.keeps_alive:
            self.close()
        return exchange

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._used = False


class _Reader:
    """Reads one response from a socket by callback: no task switch lies between the kernel and the stamp."""

    def __init__(self, sock: socket.socket, receiver: Receiver) -> None:
        self.sock = sock
        self.receiver = receiver
        self.response = Response()
        self.reads = 0
        self.last_read_ns = 0
        self.fault: tuple[str, str] | None = None
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()

    async def exchange(self, request: bytes, *, stall_s: float, limit_s: float) -> Exchange:
        handle = self.sock.fileno()
        sent_ns = time.monotonic_ns()
        try:
            await asyncio.wait_for(self.loop.sock_sendall(self.sock, request), limit_s)
        except (OSError, asyncio.TimeoutError) as exc:
            self._end("send_failed", _sentence(exc))
            return self._result(sent_ns)
        self.last_read_ns = time.monotonic_ns()
        self.loop.add_reader(handle, self._readable)
        watch = self.loop.create_task(self._watch(sent_ns, stall_s, limit_s))
        try:
            await self.done
        finally:
            watch.cancel()
            self.loop.remove_reader(handle)
        return self._result(sent_ns)

    def _readable(self) -> None:
        if self.done.done():
            return
        try:
            data, at_ns = self.receiver(self.sock)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as exc:
            self._end("reset", _sentence(exc))
            return
        if not data:
            self.response.at_eof()
            if not self.response.complete:
                before = "any answer" if self.response.status is None else "the body's end"
                self._end("truncated", f"the connection ended before {before}")
            else:
                self._end()
            return
        self.reads += 1
        self.last_read_ns = at_ns
        try:
            self.response.feed(data, at_ns)
        except BrokenHttpError as exc:
            self._end("broken_http", str(exc))
            return
        if self.response.complete:
            self._end()

    async def _watch(self, sent_ns: int, stall_s: float, limit_s: float) -> None:
        """End the exchange when nothing comes any more."""
        while True:
            now = time.monotonic_ns()
            quiet_left = stall_s - (now - self.last_read_ns) / 1e9
            time_left = limit_s - (now - sent_ns) / 1e9
            if quiet_left <= 0:
                self._end("stalled", f"no byte for {stall_s:g} s")
                return
            if time_left <= 0:
                self._end("timed_out", f"not ended after {limit_s:g} s")
                return
            await asyncio.sleep(min(quiet_left, time_left) + 0.001)

    def _end(self, code: str | None = None, detail: str = "") -> None:
        if not self.done.done():
            self.fault = (code, detail) if code else None
            self.done.set_result(None)

    def _result(self, sent_ns: int) -> Exchange:
        code, detail = self.fault or (None, "")
        return Exchange(
            sent_ns=sent_ns,
            end_ns=time.monotonic_ns(),
            response=self.response,
            reads=self.reads,
            fault=code,
            fault_detail=detail,
        )


def _is_idle(sock: socket.socket) -> bool:
    """Open with nothing to read: a server that ended an idle connection is found before a request is sent."""
    try:
        sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return True
    except OSError:
        return False
    return False


def _sentence(exc: BaseException) -> str:
    return (getattr(exc, "strerror", None) or str(exc) or type(exc).__name__).lower()
