"""The open loop: requests are sent when they are due, whether the server keeps up or not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from bench_runner.arrivals import rate_of
from bench_runner.client.lags import Lags
from bench_runner.client.timer import Timer
from bench_runner.load import LATE_MS, Load, Script, Sending

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Sequence

    from bench_runner.cells import Traffic
    from bench_runner.client.clocks import ClockPair
    from bench_runner.client.receivers import Receiver
    from bench_runner.client.transport import Connection
    from bench_runner.plan import Limits
    from bench_runner.target import Target

# Kept open and unused, so that a request need not wait for one; few, as some servers give each a thread.
_SPARE = 4
_LEAD_NS = 20_000_000
_NEVER_NS = 1 << 62


class OpenLoad(Load):
    """`due_ns` are times from the start, one for each script, in order.

    A script is a conversation of one turn. Both when a request was due and when it was sent are kept: with
    only the second, a client that falls behind would make the server look fast.
    """

    def __init__(
        self,
        traffic: Traffic,
        scripts: list[Script],
        server: Target,
        limits: Limits,
        *,
        due_ns: Sequence[int],
    ) -> None:
        super().__init__(traffic, scripts, server, limits)
        self._parse_at_once = False
        self._schedule = list(due_ns)
        self._requests: list[bytes] = []
        self._start_ns = 0
        self._next = 0
        self._late = Lags()
        self._late_requests = 0
        self._sent_ns: list[int] = []
        self._free: list[Connection] = []
        self._more: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_sent: asyncio.Event | None = None
        self._timer: Timer | None = None
        self._receiver = _Between(server.receiver, self._send_what_is_due)

    def sending(self) -> Sending:
        return Sending(
            late=self._late.summary(),
            late_share=self._late_requests / len(self._sent_ns) if self._sent_ns else None,
            target_rps=rate_of(self._schedule[: len(self._sent_ns)]),
            achieved_rps=rate_of(self._sent_ns),
        )

    def _connections(self) -> int:
        return min(2 * _SPARE, len(self.scripts))

    async def _run(self, connections: list[Connection]) -> None:
        for connection in connections:
            connection.receiver = self._receiver
        self._free = list(reversed(connections))
        self._requests = [self._request(connections[0], script, script.first) for script in self.scripts]
        self._all_sent = asyncio.Event()
        self._timer = Timer(self._send_what_is_due)
        self._start_ns = time.monotonic_ns() + _LEAD_NS
        self._arm()
        try:
            await self._all_sent.wait()
            while self._tasks:
                await asyncio.gather(*self._tasks)
        finally:
            self._receiver.due_ns = _NEVER_NS
            self._timer.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for connection in self._more:
                connection.close()

    def _arm(self) -> None:
        """For the next request: the timer where nothing comes, the receiver where much does."""
        if self._all_sent is None or self._timer is None:
            return
        if self._next >= len(self._schedule) or self.server_died:
            self._receiver.due_ns = _NEVER_NS
            self._all_sent.set()
            return
        self._receiver.due_ns = self._start_ns + self._schedule[self._next]
        self._timer.at(self._receiver.due_ns)

    def _send_what_is_due(self) -> None:
        due_ns = self._receiver.due_ns
        while due_ns <= time.monotonic_ns() and not self.server_died:
            number = self._next
            self._next += 1
            connection = self._free.pop() if self._free else self._another()
            if connection.is_open:
                self._start(connection, self._requests[number])
            self._spawn(self._answered(number, connection))
            if self._next >= len(self._schedule):
                break
            due_ns = self._start_ns + self._schedule[self._next]
        self._arm()
        if len(self._free) < _SPARE:
            self._spawn(self._spare())

    def _start(self, connection: Connection, request: bytes) -> None:
        connection.start(request, stall_s=self.limits.stall_s, limit_s=self.limits.cell_s)

    async def _answered(self, number: int, connection: Connection) -> None:
        connection.idle_since_ns = None
        tokens = self.scripts[number].prompt_tokens or self.traffic.first_prompt_tokens
        try:
            await self._ask(connection, number, self._requests[number], tokens)
        finally:
            self._free.append(connection)
        sent_ns = self._answers[number][0].sent_ns
        self._sent_ns.append(sent_ns)
        late_ns = sent_ns - self._start_ns - self._schedule[number]
        self._late.add(late_ns)
        self._late_requests += late_ns > LATE_MS * 1e6

    async def _spare(self) -> None:
        connection = self._another()
        try:
            await connection.open()
        except (OSError, asyncio.TimeoutError):
            return  # the request that would have used it finds it again, and counts it
        self._free.insert(0, connection)

    def _another(self) -> Connection:
        connection = self.server.connection()
        connection.receiver = self._receiver
        self._more.append(connection)
        return connection

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _due_ns(self, index: int) -> int | None:
        return self._start_ns + self._schedule[index]


class _Between:
    """Takes bytes like the receiver it stands for, and sends between two reads what has become due meanwhile.

    The loop looks at its timers when all that is readable has been read: with many streams that takes long.
    """

    def __init__(self, receiver: Receiver, send: Callable[[], None]) -> None:
        self.due_ns = _NEVER_NS
        self._receiver = receiver
        self._send = send

    @property
    def stamps(self) -> str:
        return self._receiver.stamps

    @property
    def lags(self) -> Lags:
        return self._receiver.lags

    @property
    def clocks(self) -> ClockPair:
        return self._receiver.clocks

    @property
    def unstamped(self) -> int:
        return self._receiver.unstamped

    def begin(self) -> None:
        self._receiver.begin()

    def prepare(self, sock: socket.socket) -> None:
        self._receiver.prepare(sock)

    def __call__(self, sock: socket.socket) -> tuple[bytes, int]:
        found = self._receiver(sock)
        if time.monotonic_ns() >= self.due_ns:
            self._send()
        return found
