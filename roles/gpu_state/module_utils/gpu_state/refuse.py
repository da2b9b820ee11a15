"""Why a GPU can't have what is wanted, known before anything is touched.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .declared import UNLOCKED
from .plan import LOCKS, PENDING, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .readings import Gpu


def refusals(gpu: Gpu, wanted: Mapping[str, Any]) -> list[str]:
    """A sentence for each setting that this GPU can't have."""
    problems = [_refusal(gpu, setting, wanted[setting]) for setting in SETTINGS if setting in wanted]
    return [f"{gpu.title}: {problem}" for problem in problems if problem]


def _refusal(gpu: Gpu, setting: str, value: Any) -> str | None:  # noqa: ANN401 - the type goes by the setting
    if setting in LOCKS:
        return _too_fast(setting, value, gpu.values.get(LOCKS[setting]))
    if setting not in gpu.values:
        return _not_there(gpu, setting, value)
    if setting == "power_limit_w":
        return _out_of_range(gpu, value)
    return None


def _too_fast(setting: str, value: Any, most: int | None) -> str | None:  # noqa: ANN401 - a range or a word
    if value == UNLOCKED or most is None or value[1] <= most:
        return None
    return f"{setting} {value[0]} to {value[1]} is more than its clock can be ({most} MHz)"


def _not_there(gpu: Gpu, setting: str, value: Any) -> str | None:  # noqa: ANN401
    if value is False and setting in PENDING and gpu.lacks(setting):
        return None  # a card without it has it off
    meaning = "this card has no such setting" if gpu.lacks(setting) else "it can't be read"
    word = gpu.unread.get(setting, "nothing")
    return f"{setting} can't be set: {meaning} (nvidia-smi says {word}). Don't declare it for this GPU"


def _out_of_range(gpu: Gpu, watts: float | None) -> str | None:
    least, most = gpu.values.get("power_min_w"), gpu.values.get("power_max_w")
    if watts is None:
        return "power_limit_w: its default limit can't be read; declare a number of watts"
    if least is None or most is None or least <= watts <= most:
        return None
    return f"power_limit_w {watts:g} is out of range: this card takes {least:g} to {most:g} W"
