"""One configuration's server from clean machine to clean machine.

preflight -> starting -> listening -> ready -> serving -> stopped; beside it: dead, and degraded: one whose
process lives and whose health may say 200, but which can't generate.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from bench_runner.client.stream import read_stream
from bench_runner.client.transport import Connection, best_receiver
from bench_runner.client.verdict import Fault, cannot_generate, judge
from bench_runner.errors import ControlError, ServerError
from bench_runner.server.cleanliness import Cleanliness, is_listening, stop_unit
from bench_runner.server.engines import ENGINES
from bench_runner.server.loading import progress
from bench_runner.server.signatures import classify, said, shows_a_crash, unit_sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_runner.client.stream import Stream
    from bench_runner.client.transport import Receiver
    from bench_runner.deployment import Deployment
    from bench_runner.plan import Plan
    from bench_runner.prompts import PromptMaker
    from bench_runner.server.cleanliness import Leftover
    from bench_runner.server.control import Control
    from bench_runner.server.gpus import GpuWatch
    from bench_runner.server.identity import Identity, UnitState

_FIRST_POLL_S = 0.05
_SLOWEST_POLL_S = 2.0
_LOG_EVERY_S = 2.0
# How long a server may take to die after its connections broke.
_DYING_S = 3.0
# With a sign of death it is waited for longer: SGLang sleeps 5 s, writes dumps, and then kills itself.
_DYING_WITH_SIGN_S = 30.0
_LAST_LINES = 5
CANARY_PROMPT_TOKENS = 32


class Server:
    def __init__(
        self,
        deployment: Deployment,
        control: Control,
        plan: Plan,
        *,
        gpus: GpuWatch | None = None,
        on_note: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        if deployment.adapter not in ENGINES:
            raise ServerError(
                "no_adapter",
                f"no adapter {deployment.adapter!r}; there are {', '.join(ENGINES)}",
            )
        self.deployment = deployment
        self.control = control
        self.plan = plan
        self.on_note = on_note
        self.engine = ENGINES[deployment.adapter](deployment)
        self.receiver: Receiver = best_receiver()
        self.identity: Identity | None = None
        self.state = "down"
        self.listening_s: float | None = None
        address = urlsplit(deployment.url)
        self.host = address.hostname or "127.0.0.1"
        self.port = address.port or 80
        self.clean = Cleanliness(deployment, self.host, self.port, gpus)
        self._log_at = 0.0
        self._log_is_told = True

    def connection(self) -> Connection:
        return Connection(self.host, self.port, self.receiver, self.engine.headers)

    async def preflight(self) -> dict[str, Any]:
        """What must hold before a start; the detail is for the journal. Raises for what forbids it."""
        self.state = "preflight"
        return await self.clean.require(self.on_note)

    async def start(self) -> None:
        """Start the unit and wait until its API is ready; a server that dies meanwhile is noticed at once."""
        self.state = "starting"
        try:
            state = await self.control.start(self.deployment.configuration)
        except ControlError as exc:
            raise ServerError("server_start_failed", str(exc), crashed=await self._has_failed()) from exc
        self.identity = state.identity
        started = time.monotonic()
        limit_s = self.plan.limits.server_ready_s
        pause_s = _FIRST_POLL_S
        while not await self._is_ready(started):
            state = await self.show()
            if not state.is_up:
                self.state = "dead"
                raise ServerError("server_crashed_loading", state.sentence, crashed=True)
            if time.monotonic() - started > limit_s:
                raise ServerError("server_not_ready", await self._too_slow(limit_s))
            await self._tell_progress()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _SLOWEST_POLL_S)
        self.state = "ready"
        self.on_note(None)
        await asyncio.to_thread(self.engine.look)
        another = self.engine.why_another_build()
        if another:
            raise ServerError("server_build_differs", another)
        self.identity = (await self.show()).identity

    async def canary(self, prompts: PromptMaker) -> float:
        """A short generation that must be right; its speed in tokens/s."""
        asked = self.plan.canary
        stream, fault = await self._canary(prompts)
        if stream is None or fault:
            raise await self._unfit(fault or Fault("no_answer", "no answer"))
        speed = asked.output_tokens / ((stream.chunks_ns[-1] - stream.sent_ns) / 1e9)
        if speed < asked.floor_tps:
            raise ServerError(
                "canary_too_slow", f"canary: {speed:.2f} tokens/s, the floor is {asked.floor_tps:g} tokens/s"
            )
        self.state = "serving"
        return speed

    async def why_degraded(self, prompts: PromptMaker) -> str | None:
        """Asked after requests failed while the process lives: a sentence, or None where it generates."""
        _, fault = await self._canary(prompts)
        if fault is None or not cannot_generate(fault.code):
            return None
        self.state = "degraded"
        return await self._degraded_sentence(fault)

    async def generate(self, prompt: str, output_tokens: int) -> Stream:
        """One request apart from any measurement."""
        connection = self.connection()
        try:
            exchange = await connection.post(
                self.engine.path,
                self.engine.request_body(prompt, output_tokens),
                stall_s=self.plan.limits.stall_s,
                limit_s=self.plan.limits.cell_s,
            )
        finally:
            connection.close()
        return read_stream(exchange)

    async def show(self) -> UnitState:
        return await self.control.show(self.deployment.configuration)

    async def has_died(self, *, patient: bool = False) -> bool:
        """Whether the process that was started no longer runs; `patient` where something speaks for it."""
        started = time.monotonic()
        signed: bool | None = None
        while True:
            state = await self.show()
            if not state.is_up or state.identity != self.identity:
                self.state = "dead"
                return True
            waited_s = time.monotonic() - started
            if not patient or waited_s >= _DYING_WITH_SIGN_S:
                return False
            if waited_s >= _DYING_S:
                signed = await self._shows_death() if signed is None else signed
                if not signed:
                    return False
            await asyncio.sleep(0.1)

    async def evidence(self) -> dict[str, Any]:
        """What is left of a server, its name first; the cell's status doesn't depend on it."""
        try:
            found = await self.control.evidence(self.deployment.configuration)
        except ControlError as exc:
            return {"state": self.state, "signature": "unknown", "error": str(exc)}
        if self.state == "dead":
            signs = said(found)
            ran = str(found.get("InvocationID", ""))
            if self.identity and ran and ran != self.identity.invocation_id:
                signs = {
                    **signs,
                    "signature": "restarted",
                    "sentence": self._restarted(found),
                    "blame": "nobody",
                }
        elif shows_a_crash(found):
            signs = said(found)
        else:
            signs = {"signature": "degraded"} if self.state == "degraded" else {}
            signs["sentence"] = f"its process lives: {unit_sentence(found)}"
        if self.identity:
            signs["measured"] = msgspec.to_builtins(self.identity)
        return {"state": self.state, **signs, **{key: value for key, value in found.items() if key != "ok"}}

    async def stop(self) -> list[Leftover]:
        """Until no process is left, the port is free and the GPU memory back; else what is left, by name."""
        self.engine.close()
        await stop_unit(self.control, self.deployment.configuration)
        self.state = "stopped"
        return await self.clean.leftovers()

    async def _canary(self, prompts: PromptMaker) -> tuple[Stream | None, Fault | None]:
        asked = self.plan.canary
        try:
            prompt = await asyncio.to_thread(prompts.prompt, "canary", CANARY_PROMPT_TOKENS)
        except ServerError as exc:
            return None, Fault(exc.code, exc.detail)
        stream = await self.generate(prompt, asked.output_tokens)
        fault = judge(stream, prompt_tokens=CANARY_PROMPT_TOKENS, output_tokens=asked.output_tokens)
        return stream, fault

    async def _unfit(self, fault: Fault) -> ServerError:
        """Dead, unable to generate, or able but wrong."""
        if await self.has_died(patient=True):
            return ServerError(f"canary_{fault.code}", f"canary: {fault.detail}", crashed=True)
        if not cannot_generate(fault.code):
            return ServerError(f"canary_{fault.code}", f"canary: {fault.detail}")
        self.state = "degraded"
        return ServerError("server_degraded", await self._degraded_sentence(fault))

    async def _degraded_sentence(self, fault: Fault) -> str:
        health = await asyncio.to_thread(self.engine.health)
        spoken = "does not answer" if health is None else f"says {health}"
        asked = self.plan.canary.output_tokens
        return (
            f"its process lives and its health {spoken}, but it can't generate {asked} tokens: "
            f"{fault.code}, {fault.detail}"
        )

    async def _is_ready(self, started: float) -> bool:
        if not await asyncio.to_thread(is_listening, self.host, self.port):
            return False
        if self.listening_s is None:
            self.state, self.listening_s = "listening", time.monotonic() - started
        return await asyncio.to_thread(self.engine.is_ready)

    async def _tell_progress(self) -> None:
        now = time.monotonic()
        if self._log_is_told and now - self._log_at >= _LOG_EVERY_S:
            self._log_at = now
            found = progress(await self._log_lines())
            self.on_note(found or ("listening, not ready yet" if self.state == "listening" else None))

    async def _log_lines(self) -> list[str]:
        try:
            return await self.control.log(self.deployment.configuration)
        except ControlError:  # an older control program: the wait is the same, only silent
            self._log_is_told = False
            return []

    async def _too_slow(self, limit_s: float) -> str:
        lines = [line for line in await self._log_lines() if line.strip()][-_LAST_LINES:]
        heard = " | ".join(line.strip()[:200] for line in lines) or "none"
        how_far = "it listened, but was not ready" if self.state == "listening" else "it did not listen"
        return f"{self.deployment.url} was not ready in {limit_s:g} s: {how_far}; its last log lines: {heard}"

    async def _shows_death(self) -> bool:
        """A port that nobody answers on, or a word of the crash in the log."""
        if not await asyncio.to_thread(is_listening, self.host, self.port):
            return True
        return shows_a_crash({"journal": await self._log_lines()})

    def _restarted(self, found: dict[str, Any]) -> str:
        before = self.identity.restarts if self.identity else 0
        gone = classify(found).sentence
        return (
            f"another process took its place while it was measured (NRestarts {before} -> "
            f"{found.get('NRestarts')}, pid {found.get('MainPID')}); the log is the new one's: {gone}"
        )

    async def _has_failed(self) -> bool:
        try:
            failed = (await self.show()).active == "failed"
        except ControlError:
            return False
        self.state = "dead" if failed else self.state
        return failed
