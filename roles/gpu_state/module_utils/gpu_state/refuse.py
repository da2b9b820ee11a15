"""Why a GPU can't have what is wanted, known before anything is touched.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .declared import UNLOCKED
from .plan import LOCKS, PENDING, SETTINGS
from .words import ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import Wanted
    from .readings import Gpu


def refusals(gpus: Sequence[Gpu], wanted: Wanted) -> list[str]:
    """A sentence for each setting that some GPUs can't have."""
    found: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        for setting in SETTINGS:
            if setting in wanted[gpu.uuid]:
                problem = _refusal(gpu, setting, wanted[gpu.uuid][setting])
                if problem:
                    found.setdefault(problem, []).append(gpu)
    return [f"{_which(group)}: {problem}" for problem, group in found.items()]


def _which(gpus: Sequence[Gpu]) -> str:
    return gpus[0].title if len(gpus) == 1 else f"GPU {ranges([gpu.index for gpu in gpus])}"


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
    return f"{setting} can't be set: {meaning} (nvidia-smi says {word}). Don't declare it there"


def _out_of_range(gpu: Gpu, watts: float | None) -> str | None:
    least, most = gpu.values.get("power_min_w"), gpu.values.get("power_max_w")
    if watts is None:
        return "power_limit_w: its default limit can't be read; declare a number of watts"
    if least is None or most is None or least <= watts <= most:
        return None
    return f"power_limit_w {watts:g} is out of range: this card takes {least:g} to {most:g} W"
