"""The closed loop: n clients, each sending its next request when its last has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from bench_runner.client.stream import read_stream
from bench_runner.client.verdict import BROKEN_CONNECTION, Fault, judge
from bench_runner.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_runner.cells import Traffic
    from bench_runner.client.stream import Stream
    from bench_runner.client.transport import Connection, Exchange
    from bench_runner.plan import Limits
    from bench_runner.server.lifecycle import Server


class Outcome(Struct, frozen=True, kw_only=True):
    """One planned request. `stream` is None where it was never sent."""

    index: int
    conversation: int
    turn: int
    stream: Stream | None
    fault: Fault | None


class Script(Struct, frozen=True, kw_only=True):
    """A conversation: its first prompt, and what is added before each later turn."""

    first: str
    turns: list[str]


class Progress(Struct):
    """Read by whoever shows it, while requests run."""

    planned: int
    done: int = 0
    completion_tokens: int = 0  # of the answers that are parsed so far
    started_ns: int | None = None


class Load:
    """Runs one cell's traffic. A server found dead ends it at once, not after a thousand refused requests."""

    def __init__(self, traffic: Traffic, scripts: list[Script], server: Server, limits: Limits) -> None:
        self.traffic = traffic
        self.scripts = scripts
        self.server = server
        self.limits = limits
        self.progress = Progress(planned=traffic.requests)
        self.server_died = False
        self._was_patient = False
        # Parsing one answer while another arrives would make that one's stamps late.
        self._parse_at_once = traffic.clients == 1 or traffic.turns > 1
        self._answers: dict[int, tuple[Exchange, int]] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._waiting: Iterator[int] = iter(range(len(scripts)))

    async def run(self) -> list[Outcome]:
        """Every planned request has an outcome, sent or not."""
        clients = min(self.traffic.clients, len(self.scripts))
        connections = [self.server.connection() for _ in range(clients)]
        missing = ("not_sent", "the server had died")
        try:
            # Opened before the clock starts; a refusal is found again, and counted, by the first request.
            await asyncio.gather(*(connection.open() for connection in connections), return_exceptions=True)
            tasks = [asyncio.ensure_future(self._client(connection)) for connection in connections]
            try:
                await asyncio.wait_for(asyncio.gather(*tasks), self.limits.cell_s)
            except asyncio.TimeoutError:
                missing = ("cell_timed_out", f"the cell's {self.limits.cell_s:g} s were over")
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for connection in connections:
                connection.close()
        for index in self._answers:
            self._outcome(index)
        self._fill(*missing)
        return [self._outcomes[index] for index in sorted(self._outcomes)]

    async def _client(self, connection: Connection) -> None:
        for number in self._waiting:
            await self._converse(connection, number)
            if self.server_died:
                return

    async def _converse(self, connection: Connection, number: int) -> None:
        script = self.scripts[number]
        text, tokens = script.first, self.traffic.first_prompt_tokens
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
            await self._ask(connection, index, text, tokens)
            if not self._parse_at_once:
                continue  # a conversation of one turn
            outcome = self._outcome(index)
            if outcome.fault or outcome.stream is None:
                await self._end_conversation(number, turn, outcome.fault.code if outcome.fault else "")
                return
            text += outcome.stream.text

    async def _ask(self, connection: Connection, index: int, text: str, tokens: int) -> None:
        exchange = await connection.post(
            self.server.engine.path,
            self.server.engine.request_body(text, self.traffic.output_tokens),
            stall_s=self.limits.stall_s,
            limit_s=self.limits.cell_s,
        )
        self._answers[index] = (exchange, tokens)
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
        """Parsed and judged once."""
        known = self._outcomes.get(index)
        if known is not None:
            return known
        exchange, tokens = self._answers[index]
        stream = read_stream(exchange)
        self.progress.completion_tokens += stream.usage.completion_tokens if stream.usage else 0
        return self._note(
            index,
            stream,
            judge(stream, prompt_tokens=tokens, output_tokens=self.traffic.output_tokens),
        )

    def _note(self, index: int, stream: Stream | None, fault: Fault | None) -> Outcome:
        number, turn = divmod(index, self.traffic.turns)
        outcome = Outcome(index=index, conversation=number, turn=turn, stream=stream, fault=fault)
        self._outcomes[index] = outcome
        return outcome

    def _fill(self, code: str, detail: str, *, conversation: int | None = None) -> None:
        """Requests that never got an answer still count: planned = ok + failed."""
        for index in range(self.traffic.requests):
            number = index // self.traffic.turns
            if index not in self._outcomes and conversation in {None, number}:
                self._note(index, None, Fault(code, detail))
