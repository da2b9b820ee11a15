"""The client of the socket that starts and stops units, so that the runner needs no rights itself."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from bench_runner.errors import ControlError
from bench_runner.server.identity import UnitState, unit_state

if TYPE_CHECKING:
    from pathlib import Path

# A stop waits for the engine (SGLang drains without bound), so there only systemd's patience counts.
_TIMEOUT_S = {
    "start": 120.0,
    "stop": 900.0,
    "show": 45.0,
    "log": 45.0,
    "evidence": 120.0,
    "stage": 150.0,  # another switch may have to end first
    "staging": 75.0,
}
_MAX_REPLY_BYTES = 32 * 1024 * 1024


class Control:
    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path

    async def start(self, configuration: str) -> UnitState:
        return unit_state(await self._ask("start", configuration))

    async def stop(self, configuration: str) -> UnitState:
        """Returns when no process of the unit is left."""
        return unit_state(await self._ask("stop", configuration))

    async def show(self, configuration: str) -> UnitState:
        return unit_state(await self._ask("show", configuration))

    async def log(self, configuration: str) -> list[str]:
        """The newest log lines of the run that is on."""
        return [str(line) for line in (await self._ask("log", configuration)).get("journal", [])]

    async def evidence(self, configuration: str) -> dict[str, Any]:
        return await self._ask("evidence", configuration)

    async def stage(self, configuration: str) -> dict[str, Any]:
        """Begin to make its models be there, where they take turns in memory (`needed`); doesn't wait."""
        return await self._ask("stage", configuration)

    async def staging(self, configuration: str) -> dict[str, Any]:
        """How far that is."""
        return await self._ask("staging", configuration)

    async def _ask(self, verb: str, configuration: str) -> dict[str, Any]:
        request = json.dumps({"verb": verb, "configuration": configuration}).encode() + b"\n"
        what = f"{verb} {configuration}"
        try:
            line = await asyncio.wait_for(self._exchange(request), _TIMEOUT_S[verb])
        except asyncio.TimeoutError as exc:
            raise ControlError(
                f"{what}: no answer from {self.socket_path} in {_TIMEOUT_S[verb]:g} s"
            ) from exc
        except OSError as exc:
            raise ControlError(
                f"{what}: {self.socket_path}: {exc.strerror or exc}; is inference-control.socket running, "
                f"and this user in its group?"
            ) from exc
        try:
            reply = json.loads(line)
        except ValueError as exc:
            raise ControlError(f"{what}: the answer of {self.socket_path} is no JSON: {line[:80]!r}") from exc
        if not isinstance(reply, dict) or reply.get("ok") is not True:
            error = reply.get("error") if isinstance(reply, dict) else repr(line[:80])
            raise ControlError(f"{what}: {error}")
        return reply

    async def _exchange(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self.socket_path, limit=_MAX_REPLY_BYTES)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.close()
