"""Before a server starts: its models into memory, where a plan's models can't be there together.

The switch is a unit of its own (the role model_stage's), which the control program starts: it goes on when
this runner is stopped, and the next one finds it at work, or done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bench_runner.errors import ControlError, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_runner.server.control import Control

_FIRST_POLL_S = 0.05
_SLOWEST_POLL_S = 1.0


async def bring_models(
    control: Control, configuration: str, on_note: Callable[[str | None], None]
) -> dict[str, Any] | None:
    """What the switch has written at its end; None where there is nothing to switch."""
    try:
        asked = await control.stage(configuration)
        if not asked["needed"]:
            return None
        on_note(None)
        return await _follow(control, configuration, str(asked["before"]), on_note)
    except ControlError as exc:
        raise ServerError("model_not_staged", str(exc)) from exc


async def _follow(
    control: Control, configuration: str, before: str, on_note: Callable[[str | None], None]
) -> dict[str, Any]:
    """Until the unit rests. `before` is the run that had left its state when this one was asked for."""
    pause_s = _FIRST_POLL_S
    while True:
        seen = await control.staging(configuration)
        written: dict[str, Any] = seen.get("switch") or {}
        if not written.get("run") or written["run"] == before:
            written = {}
        if not seen.get("needed") or seen["rests"]:
            if written.get("state") == "done":
                return written
            raise ServerError("model_not_staged", _why(seen, written))
        on_note(_how_far(written))
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.3, _SLOWEST_POLL_S)


def _how_far(written: dict[str, Any]) -> str | None:
    """`Kimi-K2.6: 12.3 of 595.0 GB, 1.15 GB/s, 507 s left`."""
    now = written.get("progress")
    if not now:
        names = ", ".join(written.get("models") or [])
        return f"{names}: {written['state']}" if names else None
    parts = [f"{written['model']}: {now['bytes'] / 1e9:.1f} of {now['total_bytes'] / 1e9:.1f} GB"]
    if now.get("rate_bytes_s"):
        parts.append(f"{now['rate_bytes_s'] / 1e9:.2f} GB/s")
    if now.get("seconds_left") is not None:
        parts.append(f"{now['seconds_left']:.0f} s left")
    return ", ".join(parts)


def _why(seen: dict[str, Any], written: dict[str, Any]) -> str:
    """The switch's own words; else what is known of its unit."""
    error = written.get("error")
    if error:
        return str(error["message"])
    if not seen.get("needed"):
        return "the plan of the switch was taken away meanwhile; run again"
    log = [line.strip() for line in seen.get("log") or [] if line.strip()]
    heard = f"; its last words: {' | '.join(log)}" if log else ""
    unit = f"model-stage-switch@{seen['set']}.service"
    return f"{unit} ended without a result ({seen['Result']}, status {seen['ExecMainStatus']}){heard}"
