"""From what is declared and what was read to the few changes that differ, and whether they came true.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .declared import DEFAULT, UNLOCKED

if TYPE_CHECKING:
    from .readings import Gpu

# In this order: without persistence the driver forgets the rest as soon as nobody has a GPU open.
SETTINGS = (
    "persistence",
    "ecc",
    "mig",
    "compute_mode",
    "power_limit_w",
    "memory_clocks_mhz",
    "graphics_clocks_mhz",
)
# Their value now and the one after a reset are two things; the second one is what can be set.
PENDING = {"ecc": "ecc_pending", "mig": "mig_pending"}
# The driver tells nobody which clocks are locked, so what we locked in this boot is remembered in a file.
LOCKS = {"graphics_clocks_mhz": "graphics_max_mhz", "memory_clocks_mhz": "memory_max_mhz"}
COMPUTE_CODES = {"default": "0", "prohibited": "2", "exclusive_process": "3"}
POWER_STEP_W = 0.01
CONFIRMED = re.compile(
    r'clocks set to "\((?:gpu|mem)ClkMin (\d+), (?:gpu|mem)ClkMax (\d+)\)" for GPU ([0-9A-Fa-f:]+\.[0-7])'
)

Locked = Mapping[str, Mapping[str, Any]]
Wanted = Mapping[str, Mapping[str, Any]]  # UUID → setting → value


@dataclass(frozen=True)
class Step:
    """One value for the GPUs that need it. One that `repeats` sets what should hold but can't be read."""

    setting: str
    value: Any
    gpus: tuple[Gpu, ...]
    repeats: bool = False

    @property
    def arguments(self) -> list[str]:
        return _arguments(self.setting, self.value)


def _arguments(setting: str, value: Any) -> list[str]:  # noqa: ANN401 - the type goes by the setting
    if setting in LOCKS:
        which = setting[0]  # g or m
        return [f"-r{which}c"] if value == UNLOCKED else [f"-l{which}c", f"{value[0]},{value[1]}"]
    if setting == "compute_mode":
        return ["-c", COMPUTE_CODES[value]]
    if setting == "power_limit_w":
        return ["-pl", f"{value:g}"]
    return [{"persistence": "-pm", "ecc": "-e", "mig": "-mig"}[setting], "1" if value else "0"]


def resolved(gpu: Gpu, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The wanted values of one GPU, with its own default power limit in the place of the word."""
    values = dict(wanted)
    if values.get("power_limit_w") == DEFAULT:
        values["power_limit_w"] = gpu.values.get("power_default_w")
    return values


def holds(gpu: Gpu, setting: str, locked: Locked) -> Any:  # noqa: ANN401
    """The value that a setting has, or will have after a reset; None when nobody knows."""
    if setting in LOCKS:
        return locked.get(gpu.uuid, {}).get(setting)
    if setting in PENDING and PENDING[setting] in gpu.values:
        return gpu.values[PENDING[setting]]
    if setting in PENDING and gpu.lacks(setting):
        return False
    return gpu.values.get(setting)


def same(setting: str, one: Any, other: Any) -> bool:  # noqa: ANN401
    if setting == "power_limit_w" and one is not None and other is not None:
        return abs(float(one) - float(other)) <= POWER_STEP_W
    return bool(one == other)


@dataclass(frozen=True)
class Job:
    """GPUs as they were found, what each should be, and what was locked before."""

    gpus: Sequence[Gpu]
    wanted: Wanted
    locked: Locked

    def steps(self) -> list[Step]:
        """What is to be set, GPUs with the same value together."""
        found = []
        for setting in SETTINGS:
            groups: dict[tuple[Any, bool], list[Gpu]] = {}
            for gpu in self.gpus:
                if setting not in self.wanted[gpu.uuid]:
                    continue
                value, now = self.wanted[gpu.uuid][setting], holds(gpu, setting, self.locked)
                # After a boot nothing is locked, so to unlock what we did not lock is no change.
                repeats = setting in LOCKS and (now == value or (now is None and value == UNLOCKED))
                if repeats or not same(setting, now, value):
                    groups.setdefault((value, repeats), []).append(gpu)
            found += [
                Step(setting, value, tuple(group), repeats) for (value, repeats), group in groups.items()
            ]
        return found


def confirmed(output: str) -> dict[str, tuple[int, int]]:
    """PCI address → the range that the driver says it locked."""
    return {pci.lower(): (int(low), int(high)) for low, high, pci in CONFIRMED.findall(output)}


def unlike(gpus: Sequence[Gpu], wanted: Wanted, locked: Locked) -> list[tuple[Gpu, str]]:
    """The GPUs and settings that aren't what is wanted, as far as can be read."""
    return [
        (gpu, setting)
        for gpu in gpus
        for setting in SETTINGS
        if setting in wanted[gpu.uuid]
        and not same(setting, holds(gpu, setting, locked), wanted[gpu.uuid][setting])
    ]


def waiting(gpu: Gpu, setting: str) -> bool:
    """Whether a setting acts only after a reset: what is and what will be differ."""
    pending = PENDING.get(setting)
    return bool(
        pending
        and pending in gpu.values
        and setting in gpu.values
        and gpu.values[pending] != gpu.values[setting]
    )


def predicted(gpus: Sequence[Gpu], todo: Sequence[Step]) -> list[Gpu]:
    """The GPUs as they would read after these steps; what waits for a reset in real life waits here too."""
    after = {gpu.uuid: dict(gpu.values) for gpu in gpus}
    for step in todo:
        if step.setting not in LOCKS:
            for gpu in step.gpus:
                after[gpu.uuid][PENDING.get(step.setting, step.setting)] = step.value
    return [replace(gpu, values=after[gpu.uuid]) for gpu in gpus]


def locked_after(locked: Locked, done: Sequence[Step]) -> dict[str, dict[str, Any]]:
    """What is locked once these steps were made."""
    after = {uuid: dict(settings) for uuid, settings in locked.items()}
    for step in done:
        if step.setting in LOCKS:
            for gpu in step.gpus:
                after.setdefault(gpu.uuid, {})[step.setting] = step.value
    return after
