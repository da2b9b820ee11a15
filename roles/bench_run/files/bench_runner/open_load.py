"""The open loop: requests are sent when they are due, whether the server keeps up or not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bench_runner.arrivals import rate_of
from bench_runner.client.lags import Lags
from bench_runner.client.timer import Alarm
from bench_runner.load import Load, Script, Sending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_runner.cells import Traffic
    from bench_runner.client.transport import Connection
    from bench_runner.plan import Limits
    from bench_runner.target import Target

# Open before the clock starts, and more when all are in use: some servers give each connection a thread.
_FIRST_CONNECTIONS = 8
_LEAD_NS = 20_000_000


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
        self._start_ns = 0
        self._late = Lags()
        self._sent_ns: list[int] = []
        self._free: list[Connection] = []
        self._more: list[Connection] = []

    def sending(self) -> Sending:
        return Sending(
            late=self._late.summary(),
            target_rps=rate_of(self._schedule[: len(self._sent_ns)]),
            achieved_rps=rate_of(self._sent_ns),
        )

    def _connections(self) -> int:
        return min(_FIRST_CONNECTIONS, len(self.scripts))

    async def _run(self, connections: list[Connection]) -> None:
        self._free = list(reversed(connections))
        requests = [self._request(connections[0], script, script.first) for script in self.scripts]
        alarm = Alarm()
        running: set[asyncio.Task[None]] = set()
        self._start_ns = time.monotonic_ns() + _LEAD_NS
        try:
            for number, request in enumerate(requests):
                await alarm.until(self._start_ns + self._schedule[number])
                if self.server_died:
                    break
                task = asyncio.ensure_future(self._send(number, request))
                running.add(task)
                task.add_done_callback(running.discard)
            await asyncio.gather(*running)
        finally:
            alarm.close()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for connection in self._more:
                connection.close()

    async def _send(self, number: int, request: bytes) -> None:
        connection = self._free.pop() if self._free else self._another()
        connection.idle_since_ns = None
        tokens = self.scripts[number].prompt_tokens or self.traffic.first_prompt_tokens
        try:
            await self._ask(connection, number, request, tokens)
        finally:
            self._free.append(connection)
        sent_ns = self._answers[number][0].sent_ns
        self._sent_ns.append(sent_ns)
        self._late.add(sent_ns - self._start_ns - self._schedule[number])

    def _another(self) -> Connection:
        connection = self.server.connection()
        self._more.append(connection)
        return connection

    def _due_ns(self, index: int) -> int | None:
        return self._start_ns + self._schedule[index]
