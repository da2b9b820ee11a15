"""The closed loop: n clients, each sending its next request when its last has ended."""

from __future__ import annotations

import asyncio
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench_runner.client.lags import Lags, LagSummary
from bench_runner.client.stream import read_stream
from bench_runner.client.verdict import BROKEN_CONNECTION, Fault, judge
from bench_runner.client.watch import ClientHealth, ClientWatch
from bench_runner.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from bench_runner.cells import Traffic
    from bench_runner.client.stream import Stream
    from bench_runner.client.transport import Connection, Exchange
    from bench_runner.plan import Limits
    from bench_runner.target import Target


class Outcome(Struct, frozen=True, kw_only=True):
    """One planned request. `stream` is None where it was never sent."""

    index: int
    conversation: int
    turn: int
    stream: Stream | None
    fault: Fault | None
    due_ns: int | None = None  # in an open loop: when it should have been sent


class Script(Struct, frozen=True, kw_only=True):
    """A conversation: its first prompt, and what is added before each later turn.

    The lengths are the traffic's where they are None; a replayed trace has its own.
    """

    first: str
    turns: list[str]
    prompt_tokens: int | None = None
    output_tokens: int | None = None


class Progress(Struct):
    """Read by whoever shows it, while requests run."""

    planned: int
    done: int = 0
    completion_tokens: int = 0  # of the answers that are parsed so far
    started_ns: int | None = None


LATE_MS = 2.0


class Sending(Struct, frozen=True, kw_only=True):
    """How the client kept to its part of the load: the server can't be held to what it wasn't asked."""

    turnaround: LagSummary | None = None  # closed loop: from an answer's last byte to the next request
    turnaround_share: float | None = None  # of the time in which requests ran
    late: LagSummary | None = None  # open loop: from when a request was due to when it was sent
    late_share: float | None = None  # of the requests, that were sent more than LATE_MS after they were due
    target_rps: float | None = None
    achieved_rps: float | None = None


class Load:
    """Runs one cell's traffic. A server found dead ends it at once, not after a thousand refused requests."""

    def __init__(self, traffic: Traffic, scripts: list[Script], server: Target, limits: Limits) -> None:
        self.traffic = traffic
        self.scripts = scripts
        self.server = server
        self.limits = limits
        self.progress = Progress(planned=traffic.requests)
        self.server_died = False
        self.health: ClientHealth | None = None
        self._was_patient = False
        # Parsing one answer while another arrives would make reads late, and chunks share a read.
        self._parse_at_once = traffic.clients == 1 or traffic.turns > 1
        self._answers: dict[int, tuple[Exchange, int, int]] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._waiting: Iterator[int] = iter(range(len(scripts)))
        self._turnarounds = Lags()
        self._turnaround_ns = 0
        self._running_ns = 0
        self._reads = 0

    async def run(self) -> list[Outcome]:
        """Every planned request has an outcome, sent or not."""
        connections = [self.server.connection() for _ in range(self._connections())]
        missing = ("not_sent", "the server had died")
        watch = ClientWatch(self.server.receiver)
        try:
            # Opened before the clock starts; a refusal is found again, and counted, by the first request.
            await asyncio.gather(*(connection.open() for connection in connections), return_exceptions=True)
            with _no_collection():
                watch.start()
                try:
                    await asyncio.wait_for(self._run(connections), self.limits.cell_s)
                except asyncio.TimeoutError:
                    missing = ("cell_timed_out", f"the cell's {self.limits.cell_s:g} s were over")
                finally:
                    self.health = watch.stop(reads=self._reads)
        finally:
            for connection in connections:
                connection.close()
        for index in list(self._answers):
            self._outcome(index)
        self._fill(*missing)
        return [self._outcomes[index] for index in sorted(self._outcomes)]

    def sending(self) -> Sending:
        """Once it has run. Between a conversation's turns the client works, so they say nothing."""
        if self.traffic.turns > 1 or not self._running_ns:
            return Sending()
        return Sending(
            turnaround=self._turnarounds.summary(), turnaround_share=self._turnaround_ns / self._running_ns
        )

    def _connections(self) -> int:
        return min(self.traffic.clients, len(self.scripts))

    async def _run(self, connections: list[Connection]) -> None:
        await _all([self._client(connection) for connection in connections])

    async def _client(self, connection: Connection) -> None:
        for number in self._waiting:
            await self._converse(connection, number)
            if self.server_died:
                return

    async def _converse(self, connection: Connection, number: int) -> None:
        script = self.scripts[number]
        text, tokens = script.first, script.prompt_tokens or self.traffic.first_prompt_tokens
        for turn in range(self.traffic.turns):
            index = number * self.traffic.turns + turn
            if turn:
                text += script.turns[turn - 1]
                try:
                    tokens = await asyncio.to_thread(self.server.engine.tokens, text)
                except ServerError as exc:
                    self._note(index, None, Fault(exc.code, exc.detail))
                    await self._end_conversation(number, turn, exc.code)
                    return
            request = self._request(connection, script, text)
            await self._ask(connection, index, request, tokens)
            if not self._parse_at_once:
                continue  # a conversation of one turn
            outcome = self._outcome(index)
            if outcome.fault or outcome.stream is None:
                await self._end_conversation(number, turn, outcome.fault.code if outcome.fault else "")
                return
            text += outcome.stream.text

    def _request(self, connection: Connection, script: Script, text: str) -> bytes:
        engine = self.server.engine
        return connection.request(engine.path, engine.request_body(text, self._output_tokens(script)))

    def _output_tokens(self, script: Script) -> int:
        return script.output_tokens or self.traffic.output_tokens

    async def _ask(self, connection: Connection, index: int, request: bytes, tokens: int) -> None:
        idle_since_ns = connection.idle_since_ns
        exchange = await connection.send(request, stall_s=self.limits.stall_s, limit_s=self.limits.cell_s)
        if idle_since_ns is not None:
            self._turnarounds.add(exchange.sent_ns - idle_since_ns)
            self._turnaround_ns += exchange.sent_ns - idle_since_ns
        self._running_ns += exchange.end_ns - exchange.sent_ns
        self._reads += exchange.reads
        self._answers[index] = (
            exchange,
            tokens,
            self._output_tokens(self.scripts[index // self.traffic.turns]),
        )
        self.progress.done += 1
        if self.progress.started_ns is None:
            self.progress.started_ns = exchange.sent_ns
        if exchange.fault in BROKEN_CONNECTION:
            await self._ask_whether_dead()

    async def _ask_whether_dead(self) -> None:
        """Patiently the first time only: a server that outlived one break isn't waited for at each."""
        patient, self._was_patient = not self._was_patient, True
        if not self.server_died and await self.server.has_died(patient=patient):
            self.server_died = True

    async def _end_conversation(self, number: int, turn: int, code: str) -> None:
        """Later turns build on the answer that didn't come."""
        self._fill("not_sent", f"turn {turn + 1} of the conversation failed ({code})", conversation=number)
        if code in {*BROKEN_CONNECTION, "no_tokenizer"}:
            await self._ask_whether_dead()

    def _outcome(self, index: int) -> Outcome:
        """Parsed and judged once; the bytes aren't kept."""
        known = self._outcomes.get(index)
        if known is not None:
            return known
        exchange, tokens, output_tokens = self._answers.pop(index)
        stream = read_stream(exchange)
        self.progress.completion_tokens += stream.usage.completion_tokens if stream.usage else 0
        return self._note(index, stream, judge(stream, prompt_tokens=tokens, output_tokens=output_tokens))

    def _note(self, index: int, stream: Stream | None, fault: Fault | None) -> Outcome:
        number, turn = divmod(index, self.traffic.turns)
        outcome = Outcome(
            index=index,
            conversation=number,
            turn=turn,
            stream=stream,
            fault=fault,
            due_ns=self._due_ns(index),
        )
        self._outcomes[index] = outcome
        return outcome

    def _due_ns(self, index: int) -> int | None:  # noqa: ARG002 - a closed loop has no times of its own
        return None

    def _fill(self, code: str, detail: str, *, conversation: int | None = None) -> None:
        """Requests that never got an answer still count: planned = ok + failed."""
        for index in range(self.traffic.requests):
            number = index // self.traffic.turns
            if index not in self._outcomes and conversation in {None, number}:
                self._note(index, None, Fault(code, detail))


async def _all(jobs: list[Coroutine[Any, Any, None]]) -> None:
    """Until all have ended; none is left running when this is cancelled."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No collection of cycles in a measurement: one takes milliseconds, in which nothing is read or sent."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
