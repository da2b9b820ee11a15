"""One configuration's server from clean machine to clean machine: preflight, start, ready, canary, stop."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bench_runner.client.stream import read_stream
from bench_runner.client.transport import Connection, ReadTimeReceiver
from bench_runner.client.verdict import judge
from bench_runner.errors import BusyError, ControlError, ServerError
from bench_runner.server.engines import ENGINES
from bench_runner.server.signatures import signature

if TYPE_CHECKING:
    from bench_runner.client.stream import Stream
    from bench_runner.client.transport import Receiver
    from bench_runner.deployment import Deployment
    from bench_runner.plan import Plan
    from bench_runner.prompts import PromptMaker
    from bench_runner.server.control import Control
    from bench_runner.server.identity import Identity, UnitState

_FIRST_POLL_S = 0.05
_SLOWEST_POLL_S = 2.0
# How long a server may take to die after its connections broke: SGLang's parent outlives its scheduler.
_DYING_S = 3.0
_PORT_FREE_S = 10.0
CANARY_PROMPT_TOKENS = 32


class Server:
    def __init__(self, deployment: Deployment, control: Control, plan: Plan) -> None:
        if deployment.adapter not in ENGINES:
            raise ServerError(
                "no_adapter",
                f"no adapter {deployment.adapter!r}; there are {', '.join(ENGINES)}",
            )
        self.deployment = deployment
        self.control = control
        self.plan = plan
        self.engine = ENGINES[deployment.adapter](deployment)
        self.receiver: Receiver = ReadTimeReceiver()
        self.identity: Identity | None = None
        address = urlsplit(deployment.url)
        self.host = address.hostname or "127.0.0.1"
        self.port = address.port or 80

    def connection(self) -> Connection:
        return Connection(self.host, self.port, self.receiver)

    async def require_free_port(self) -> None:
        if is_listening(self.host, self.port):
            raise BusyError(
                f"port {self.port} of {self.host} is in use by something that is no inference unit; "
                f"find it (ss -ltnp 'sport = {self.port}') and stop it"
            )

    async def start(self) -> None:
        """Start the unit and wait until its API is ready; a server that dies meanwhile is noticed at once."""
        try:
            state = await self.control.start(self.deployment.configuration)
        except ControlError as exc:
            raise ServerError("server_start_failed", str(exc), crashed=await self._has_failed()) from exc
        self.identity = state.identity
        limit_s = self.plan.limits.server_ready_s
        until = time.monotonic() + limit_s
        pause_s = _FIRST_POLL_S
        while not await asyncio.to_thread(self.engine.is_ready):
            state = await self.show()
            if not state.is_up:
                raise ServerError("server_crashed_loading", state.sentence, crashed=True)
            if time.monotonic() > until:
                raise ServerError("server_not_ready", f"{self.deployment.url} was not ready in {limit_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _SLOWEST_POLL_S)
        await asyncio.to_thread(self.engine.look)
        self.identity = (await self.show()).identity

    async def canary(self, prompts: PromptMaker) -> float:
        """A short generation that must be right; its speed in tokens/s."""
        asked = self.plan.canary
        prompt = await asyncio.to_thread(prompts.prompt, "canary", CANARY_PROMPT_TOKENS)
        stream = await self.generate(prompt, asked.output_tokens)
        fault = judge(stream, prompt_tokens=CANARY_PROMPT_TOKENS, output_tokens=asked.output_tokens)
        if fault:
            died = await self.has_died(patient=True)
            raise ServerError(f"canary_{fault.code}", f"canary: {fault.detail}", crashed=died)
        speed = asked.output_tokens / ((stream.chunks_ns[-1] - stream.sent_ns) / 1e9)
        if speed < asked.floor_tps:
            raise ServerError(
                "canary_too_slow", f"canary: {speed:.2f} tokens/s, the floor is {asked.floor_tps:g} tokens/s"
            )
        return speed

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
        until = time.monotonic() + (_DYING_S if patient else 0.0)
        while True:
            state = await self.show()
            if not state.is_up or state.identity != self.identity:
                return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(0.1)

    async def evidence(self) -> dict[str, Any]:
        """What is left of a dead server; the cell's status doesn't depend on its being complete."""
        try:
            found = await self.control.evidence(self.deployment.configuration)
        except ControlError as exc:
            return {"signature": "unknown", "error": str(exc)}
        return {"signature": signature(found), **{key: value for key, value in found.items() if key != "ok"}}

    async def stop(self) -> None:
        """Until no process is left and the port is free."""
        self.engine.close()
        await stop_unit(self.control, self.deployment.configuration)
        until = time.monotonic() + _PORT_FREE_S
        while is_listening(self.host, self.port):
            if time.monotonic() > until:
                raise ControlError(f"port {self.port} is still in use {_PORT_FREE_S:g} s after the stop")
            await asyncio.sleep(0.05)

    async def _has_failed(self) -> bool:
        try:
            return (await self.show()).active == "failed"
        except ControlError:
            return False


async def stop_unit(control: Control, configuration: str) -> None:
    state = await control.stop(configuration)
    if state.is_up or state.processes:
        raise ControlError(f"stop {configuration}: {state.sentence}, {state.processes} processes are left")


def is_listening(host: str, port: int) -> bool:
    with socket.socket() as sock:
        sock.settimeout(1.0)
        return sock.connect_ex((host, port)) == 0
