"""What an operator declares: checked word by word, and worked out for each GPU.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .readings import Gpu

PER_GPU = "gpus"
DEFAULT = "default"
UNLOCKED = "unlocked"
COMPUTE_MODES = ("default", "exclusive_process", "prohibited")
ON = ("true", "yes", "on", "enabled", "1")
OFF = ("false", "no", "off", "disabled", "0")


class DeclaredError(Exception):
    """What was declared can't be meant; has every problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


def _switch(value: Any) -> bool:  # noqa: ANN401 - YAML gives a boolean, -e gives a word
    word = str(value).strip().lower()
    if word in ON:
        return True
    if word in OFF:
        return False
    raise ValueError("true or false")


def _compute_mode(value: Any) -> str:  # noqa: ANN401
    word = str(value).strip().lower()
    if word in COMPUTE_MODES:
        return word
    raise ValueError(" or ".join(COMPUTE_MODES))


def _power(value: Any) -> float | str:  # noqa: ANN401
    if str(value).strip().lower() == DEFAULT:
        return DEFAULT
    try:
        watts = float(value)
    except (TypeError, ValueError):
        watts = 0.0
    if isinstance(value, bool) or not 0 < watts < 1e5:  # noqa: PLR2004 - more than any card has
        raise ValueError(f"a number of watts, or {DEFAULT}")
    return watts


def _clocks(value: Any) -> tuple[int, int] | str:  # noqa: ANN401
    if str(value).strip().lower() == UNLOCKED:
        return UNLOCKED
    if isinstance(value, str):
        value = value.strip("[] ").split(",")
    ends = list(value) if isinstance(value, (list, tuple)) else [value, value]
    try:
        lowest, highest = (int(str(end)) for end in (ends * 2 if len(ends) == 1 else ends))
    except ValueError:
        lowest, highest = 1, 0
    if not 0 <= lowest <= highest or highest == 0:
        raise ValueError(f"a clock in MHz, a pair [lowest, highest], or {UNLOCKED}")
    return lowest, highest


READERS: dict[str, Callable[[Any], Any]] = {
    "persistence": _switch,
    "ecc": _switch,
    "mig": _switch,
    "compute_mode": _compute_mode,
    "power_limit_w": _power,
    "graphics_clocks_mhz": _clocks,
    "memory_clocks_mhz": _clocks,
}


def read_declared(raw: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 - what was written is unknown
    """`{"": settings of all GPUs, "<uuid or index>": settings of one}`, in values of one type each."""
    if not isinstance(raw, Mapping):
        raise DeclaredError([f"gpu_state_declared is {raw!r}; give a mapping such as {{power_limit_w: 450}}"])
    problems: list[str] = []
    wanted = {"": _settings("", {k: v for k, v in raw.items() if k != PER_GPU}, problems)}
    each = raw.get(PER_GPU) or {}
    if isinstance(each, Mapping):
        for name, settings in each.items():
            if isinstance(settings, Mapping):
                wanted[str(name)] = _settings(f"{PER_GPU}.{name}.", settings, problems)
            else:
                problems.append(f"gpu_state_declared.{PER_GPU}.{name} is {settings!r}; give its settings")
    else:
        problems.append(f"gpu_state_declared.{PER_GPU} is {each!r}; give settings by UUID or index")
    if problems:
        raise DeclaredError(problems)
    return wanted


def _settings(where: str, raw: Mapping[Any, Any], problems: list[str]) -> dict[str, Any]:
    found = {}
    for key, value in raw.items():
        name = f"gpu_state_declared.{where}{key}"
        if str(key) not in READERS:
            near = difflib.get_close_matches(str(key), [*READERS, PER_GPU], n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(READERS)}"
            problems.append(f"{name} is no setting; {hint}")
            continue
        if value is None:  # an empty value in YAML: left alone
            continue
        try:
            found[str(key)] = READERS[str(key)](value)
        except ValueError as exc:
            problems.append(f"{name} is {value!r}; give {exc}")
    return found


def for_each(declared: Mapping[str, Mapping[str, Any]], gpus: Sequence[Gpu]) -> dict[str, dict[str, Any]]:
    """UUID → the settings of that GPU: those of all GPUs, and over them its own by index, then by UUID."""
    named = {name for name in declared if name}
    known = {str(gpu.index) for gpu in gpus} | {gpu.uuid for gpu in gpus}
    missing = sorted(named - known)
    if missing:
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus) or "none"
        raise DeclaredError(
            [f"gpu_state_declared.{PER_GPU}.{name}: no such GPU here; there are: {there}" for name in missing]
        )
    empty: Mapping[str, Any] = {}
    return {
        gpu.uuid: {
            **declared.get("", empty),
            **declared.get(str(gpu.index), empty),
            **declared.get(gpu.uuid, empty),
        }
        for gpu in gpus
    }
