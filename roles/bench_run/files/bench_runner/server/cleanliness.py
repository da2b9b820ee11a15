"""A clean machine before a server starts and after its stop: its port, the GPUs' memory, their links."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bench_runner.errors import BusyError, ControlError, ServerError
from bench_runner.server.peers import check_peers

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_runner.deployment import Deployment
    from bench_runner.server.control import Control
    from bench_runner.server.gpus import GpuWatch, Memory

_PORT_FREE_S = 10.0


class Leftover(Struct, frozen=True, kw_only=True):
    """Something of a stopped server that is still there: `port_kept` or `gpu_memory_held`."""

    code: str
    detail: str


class Cleanliness:
    def __init__(self, deployment: Deployment, host: str, port: int, gpus: GpuWatch | None) -> None:
        self.deployment = deployment
        self.host = host
        self.port = port
        self.gpus = gpus

    async def require(self, on_note: Callable[[str | None], None]) -> dict[str, Any]:
        """Raise for what forbids a start; else say what was looked at, and what wasn't, with the reason."""
        self._require_free_port()
        looked: dict[str, Any] = {"port": f"{self.port} is free"}
        if self.gpus is None:
            return looked
        on_note("waiting for free GPU memory")
        known = set(self.gpus.baseline_mib)
        memory = await self._gpu_memory(self.gpus)
        limits = self.gpus.limit_mib()
        held = memory.above(limits)
        if held:
            said = f"{self.deployment.unit} is not started: {memory.sentence(limits)}"
            if known >= set(held):  # it was free in this run: what holds it now is left of ours
                raise ServerError("gpu_memory_held", said)
            raise BusyError(f"{said}; it would disturb every measurement: end it, and run again")
        looked["gpu_memory_mib"] = memory.used_mib or memory.skipped
        on_note("checking that the GPUs reach each other")
        peers = await check_peers(self.deployment, memory)
        looked["gpu_peers"] = msgspec.to_builtins(peers)
        if peers.forbids:
            raise ServerError("gpu_peers_fail", f"{self.deployment.unit} is not started: {peers.sentence}")
        on_note(None)
        return looked

    async def leftovers(self) -> list[Leftover]:
        """After a stop."""
        found = []
        until = time.monotonic() + _PORT_FREE_S
        while await asyncio.to_thread(is_listening, self.host, self.port):
            if time.monotonic() > until:
                found.append(Leftover(code="port_kept", detail=self._port_kept()))
                break
            await asyncio.sleep(0.05)
        if self.gpus is not None:
            memory = await self._gpu_memory(self.gpus)
            limits = self.gpus.limit_mib()
            if memory.above(limits):
                found.append(Leftover(code="gpu_memory_held", detail=memory.sentence(limits)))
        return found

    async def _gpu_memory(self, gpus: GpuWatch) -> Memory:
        return await gpus.require_free(self.deployment.visible_gpus, self.deployment.tensor_parallelism)

    def _require_free_port(self) -> None:
        if is_listening(self.host, self.port):
            raise BusyError(
                f"port {self.port} of {self.host} is in use by something that is no inference unit; "
                f"find it (ss -ltnp 'sport = {self.port}') and stop it"
            )

    def _port_kept(self) -> str:
        return (
            f"port {self.port} is still answered {_PORT_FREE_S:g} s after {self.deployment.unit} was "
            f"stopped, by a process outside it: find it (ss -ltnp 'sport = {self.port}') and end it"
        )


async def stop_unit(control: Control, configuration: str) -> None:
    state = await control.stop(configuration)
    if state.is_up or state.processes:
        raise ControlError(f"stop {configuration}: {state.sentence}, {state.processes} processes are left")


def is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
