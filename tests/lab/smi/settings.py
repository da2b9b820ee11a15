"""The GPUs' settings: one state for the host and its containers, most of it gone after a reboot.

The file lies on the host's disk and is shown beside the driver's own in /proc/driver/nvidia.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .nvml import SmiError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

STATE = Path("/proc/driver/nvidia/lab-settings.json")
BAD_ARGUMENT = 2
POWER_W = (150.0, 600.0)
COMPUTE_MODES = {"0": "Default", "2": "Prohibited", "3": "Exclusive_Process"}
COMPUTE_NAMES = {"DEFAULT": "0", "PROHIBITED": "2", "EXCLUSIVE_PROCESS": "3"}
SWITCH = {"0": "Disabled", "1": "Enabled", "DISABLED": "Disabled", "ENABLED": "Enabled"}


def load() -> dict[str, Any]:
    text = STATE.read_text() if STATE.exists() else ""
    state: dict[str, Any] = json.loads(text or "{}")
    return state


def settings(uuid: str) -> dict[str, Any]:
    defaults = {
        "persistence": "Disabled",
        "power_w": POWER_W[1],
        "clocks_mhz": None,
        "memory_clocks_mhz": None,
        "compute": "0",
        "ecc": "Enabled",
        "ecc_pending": "Enabled",
        "mig": "Disabled",
        "mig_pending": "Disabled",
    }
    return {**defaults, **load().get(uuid, {})}


def save(uuid: str, **changes: Any) -> None:
    state = load()
    state[uuid] = {**settings(uuid), **changes}
    STATE.write_text(json.dumps(state, indent=1))


def change(gpu: dict[str, Any], wanted: argparse.Namespace) -> list[str]:
    """Apply the settings of the command line to one GPU; what nvidia-smi says of each."""
    said = [
        apply(gpu["uuid"], gpu["bus_id"], getattr(wanted, option))
        for option, apply in SETTERS.items()
        if getattr(wanted, option) not in {None, False}
    ]
    return [line for line in said if line]


def _persistence(uuid: str, at: str, text: str) -> str:
    mode = SWITCH[text.upper()]
    if mode == settings(uuid)["persistence"]:
        return f"Persistence mode is already {mode} for GPU {at}."
    save(uuid, persistence=mode)
    return f"{mode} persistence mode for GPU {at}."


def _power_limit(uuid: str, at: str, watts: float) -> str:
    low, high = POWER_W
    if not low <= watts <= high:
        raise SmiError(
            f"Provided power limit {watts:.2f} W is not a valid power limit which should be between "
            f"{low:.2f} W and {high:.2f} W for GPU {at}\nTerminating early due to previous errors.",
            BAD_ARGUMENT,
        )
    before = settings(uuid)["power_w"]
    save(uuid, power_w=watts)
    return f"Power limit for GPU {at} was set to {watts:.2f} W from {before:.2f} W."


def _range(text: str) -> list[int]:
    low, _, high = text.partition(",")
    return [int(low), int(high or low)]


def _lock_clocks(uuid: str, at: str, text: str) -> str:
    low, high = _range(text)
    save(uuid, clocks_mhz=[low, high])
    return f'GPU clocks set to "(gpuClkMin {low}, gpuClkMax {high})" for GPU {at}'


def _lock_memory_clocks(uuid: str, at: str, text: str) -> str:
    low, high = _range(text)
    save(uuid, memory_clocks_mhz=[low, high])
    return f'Memory clocks set to "(memClkMin {low}, memClkMax {high})" for GPU {at}'


def _reset_clocks(uuid: str, _at: str, _set: bool) -> str:  # noqa: FBT001 (a switch of the command line)
    save(uuid, clocks_mhz=None)
    return ""


def _reset_memory_clocks(uuid: str, _at: str, _set: bool) -> str:  # noqa: FBT001 (as above)
    save(uuid, memory_clocks_mhz=None)
    return ""


def _compute_mode(uuid: str, at: str, text: str) -> str:
    mode = COMPUTE_NAMES.get(text.upper(), text)
    save(uuid, compute=mode)
    return f"Set compute mode to {COMPUTE_MODES[mode].upper()} for GPU {at}."


def _ecc(uuid: str, at: str, text: str) -> str:
    mode = SWITCH[text.upper()]
    save(uuid, ecc_pending=mode)
    return f"{mode} ECC support for GPU {at}."


def _mig(uuid: str, at: str, text: str) -> str:
    mode = SWITCH[text.upper()]
    save(uuid, mig_pending=mode)
    word = "enable" if mode == "Enabled" else "disable"
    return f"Warning: MIG mode is in pending {word} state for GPU {at}:In use by another client"


SETTERS: dict[str, Callable[[str, str, Any], str]] = {
    "pm": _persistence,
    "pl": _power_limit,
    "lgc": _lock_clocks,
    "lmc": _lock_memory_clocks,
    "rgc": _reset_clocks,
    "rmc": _reset_memory_clocks,
    "c": _compute_mode,
    "e": _ecc,
    "mig": _mig,
}
