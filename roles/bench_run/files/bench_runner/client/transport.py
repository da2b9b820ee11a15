"""A client's connection: opened before the clock starts, kept, opened again where the server closed it."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING

from bench_runner.client.exchange import Exchange, Running, sentence
from bench_runner.client.http1 import Response
from bench_runner.client.receivers import ReadTimeReceiver, Receiver, best_receiver

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Connection", "Exchange", "ReadTimeReceiver", "Receiver", "best_receiver"]

_LOST_WHILE_IDLE = {"reset", "truncated", "send_failed"}


class Connection:
    """One request at a time. Its socket stays with the loop between requests, so that a close is noticed."""

    def __init__(
        self, host: str, port: int, receiver: Receiver, headers: Mapping[str, str] | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.receiver = receiver
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._socket: socket.socket | None = None
        self._running: Running | None = None
        self._used = False
        self.idle_since_ns: int | None = None  # since its last answer's last byte

    async def open(self, *, timeout_s: float = 10) -> None:
        if self._socket is not None:
            return
        loop = asyncio.get_running_loop()
        family, kind, proto, _, address = (
            await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        )[0]
        sock = socket.socket(family, kind, proto)
        try:
            sock.settimeout(0)  # non-blocking, as the loop needs it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.receiver.prepare(sock)
            await asyncio.wait_for(loop.sock_connect(sock, address), timeout_s)
        except BaseException:
            sock.close()
            raise
        self._socket = sock
        loop.add_reader(sock.fileno(), self._readable)

    def request(self, path: str, body: bytes) -> bytes:
        """The bytes of a request, made before its time has come."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n{self._headers}\r\n"
        )
        return head.encode() + body

    async def post(self, path: str, body: bytes, *, stall_s: float, limit_s: float) -> Exchange:
        """Send `body`, take the whole response. Never raises for what a server does; the exchange says it."""
        return await self.send(self.request(path, body), stall_s=stall_s, limit_s=limit_s)

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def start(self, request: bytes, *, stall_s: float, limit_s: float) -> None:
        """Send now, on a connection that is open; `send` with the same request then takes the response."""
        if self._socket is None:
            raise RuntimeError("start on a connection that is not open")
        self._running = Running(self._socket, self.receiver, asyncio.get_running_loop())
        self._running.start(request, stall_s=stall_s, limit_s=limit_s)

    async def send(self, request: bytes, *, stall_s: float, limit_s: float) -> Exchange:
        """As `post`, of a request that `request` has made, and `start` perhaps sent."""
        kept = self._used
        exchange = await self._once(request, stall_s, limit_s)
        if kept and exchange.fault in _LOST_WHILE_IDLE and not exchange.reads:
            # The server closed the kept connection just as we sent, as HTTP lets it: no answer, so ask again.
            exchange = await self._once(request, stall_s, limit_s)
        return exchange

    def close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._used = False

    async def _once(self, request: bytes, stall_s: float, limit_s: float) -> Exchange:
        try:
            if self._running is None:
                await self.open()
        except (OSError, asyncio.TimeoutError) as exc:
            now = time.monotonic_ns()
            code = "refused" if isinstance(exc, ConnectionRefusedError) else "connect_failed"
            return Exchange(
                sent_ns=now, end_ns=now, response=Response(), fault=code, fault_detail=sentence(exc)
            )
        if self._running is None:
            self.start(request, stall_s=stall_s, limit_s=limit_s)
        running = self._running
        if running is None:  # start() has just set it
            raise RuntimeError("nothing runs after start")
        try:
            await running.done
        except BaseException:
            running.end()
            self.close()
            raise
        finally:
            self._running = None
        exchange = running.result()
        self._used = self._socket is not None
        self.idle_since_ns = exchange.last_ns
        if exchange.fault or not exchange.response.keeps_alive:
            self.close()
        return exchange

    def _readable(self) -> None:
        running = self._running
        if running is not None and not running.done.done():
            running.readable()
        else:
            self._idle_readable()

    def _idle_readable(self) -> None:
        """Nothing may come now: a server that ends an idle connection is found before a request is sent."""
        if self._socket is None:
            return
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass
        self.close()
