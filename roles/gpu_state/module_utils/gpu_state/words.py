"""A GPU's state in an operator's words: the diff, the summary, the notes, and what a benchmark records.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .declared import UNLOCKED
from .plan import LOCKS, PENDING, SETTINGS, holds, waiting
from .readings import ABSENT, UNKNOWN_TO_DRIVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .plan import Locked, Step
    from .readings import Gpu

NAMES = {
    "persistence": "persistence",
    "ecc": "ECC",
    "mig": "MIG",
    "compute_mode": "compute mode",
    "power_limit_w": "power limit",
    "graphics_clocks_mhz": "graphics clocks",
    "memory_clocks_mhz": "memory clocks",
}
RECORDED = (
    "driver_version",
    "persistence",
    "ecc",
    "mig",
    "compute_mode",
    "power_limit_w",
    "power_enforced_w",
)


def value_words(setting: str, value: Any) -> str:  # noqa: ANN401 - the type goes by the setting
    if value is None:
        return "not known"
    if setting in LOCKS:
        if value == UNLOCKED:
            return "not locked"
        return f"{value[0]} MHz" if value[0] == value[1] else f"{value[0]} to {value[1]} MHz"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g} W" if setting == "power_limit_w" else str(value)


def state_text(gpus: Sequence[Gpu], locked: Locked) -> str:
    """A paragraph a GPU, for the diff."""
    lines: list[str] = []
    for gpu in gpus:
        lines.append(f"{gpu.title} {gpu.values.get('name', '')}".rstrip())
        lines += [f"  {NAMES[setting]}: {_state(gpu, setting, locked)}" for setting in SETTINGS]
    return "\n".join(lines) + "\n"


def _state(gpu: Gpu, setting: str, locked: Locked) -> str:
    if setting in LOCKS:
        return value_words(setting, holds(gpu, setting, locked))
    if setting not in gpu.values:
        return "none" if gpu.lacks(setting) else f"not known ({gpu.unread.get(setting, '')})"
    now = value_words(setting, gpu.values[setting])
    if waiting(gpu, setting):
        return f"{now}, {value_words(setting, gpu.values[PENDING[setting]])} after a reset or reboot"
    return now


def change_words(step: Step, locked: Locked) -> str:
    """'power limit 450 W (was 600 W) on GPU 0-7'."""
    before = [value_words(step.setting, holds(gpu, step.setting, locked)) for gpu in step.gpus]
    was = " and ".join(dict.fromkeys(before))
    value = value_words(step.setting, step.value)
    return f"{NAMES[step.setting]} {value} (was {was}) on GPU {ranges([gpu.index for gpu in step.gpus])}"


def ranges(numbers: Sequence[int]) -> str:
    """[0, 1, 2, 5] → '0-2, 5'."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def notes(gpus: Sequence[Gpu], wanted: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What an operator should know although nothing failed; the same of several GPUs is said once."""
    found: dict[str, list[int]] = {}
    for gpu in gpus:
        for note in _notes(gpu, wanted.get(gpu.uuid, {})):
            found.setdefault(note, []).append(gpu.index)
    return [f"GPU {ranges(indices)}: {note}" for note, indices in found.items()]


def _notes(gpu: Gpu, wanted: Mapping[str, Any]) -> list[str]:
    found = []
    for setting in PENDING:
        if waiting(gpu, setting):
            now, then = (value_words(setting, gpu.values[key]) for key in (setting, PENDING[setting]))
            found.append(
                f"{NAMES[setting]} is {now} until the GPU is reset or the host rebooted, then {then}"
            )
    if gpu.values.get("persistence") is False and {"power_limit_w", *LOCKS} & wanted.keys():
        found.append(
            "persistence is off, so the driver may forget power limit and clocks when no program has the GPU "
            "open; declare persistence: true"
        )
    enforced, limit = gpu.values.get("power_enforced_w"), gpu.values.get("power_limit_w")
    if enforced is not None and limit is not None and enforced < limit - 1:
        found.append(
            f"{enforced:g} W is enforced although the limit is {limit:g} W (board or chassis ask for less)"
        )
    odd = {name: word for name, word in gpu.unread.items() if word not in (*ABSENT, UNKNOWN_TO_DRIVER)}
    if odd:
        found.append(f"not readable: {', '.join(f'{key} {odd[key]}' for key in sorted(odd))}")
    return found


def summary(gpus: Sequence[Gpu], wanted: Mapping[str, Mapping[str, Any]], changes: Sequence[str]) -> str:
    count = f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"
    if changes:
        return "set " + "; ".join(changes)
    declared = {setting for settings in wanted.values() for setting in settings}
    if not declared:
        limits = sorted({gpu.values["power_limit_w"] for gpu in gpus if "power_limit_w" in gpu.values})
        shown = f" (power limit {', '.join(f'{limit:g}' for limit in limits)} W)" if limits else ""
        return f"state of {count} recorded{shown}; nothing is declared, so nothing was touched"
    return f"{count} as declared: {', '.join(NAMES[setting] for setting in SETTINGS if setting in declared)}"


def recorded(gpus: Sequence[Gpu], locked: Locked) -> dict[str, dict[str, Any]]:
    """UUID → what a measurement depends on. None is a value that nobody could read."""
    return {
        gpu.uuid: {
            "index": gpu.index,
            "pci": gpu.pci,
            "name": gpu.values.get("name"),
            **{name: gpu.values.get(name) for name in RECORDED},
            **{name: holds(gpu, name, locked) for name in LOCKS},
        }
        for gpu in gpus
    }
