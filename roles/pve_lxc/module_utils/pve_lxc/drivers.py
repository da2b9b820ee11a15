"""Load NVIDIA's kernel modules.

nvidia-uvm is loaded by the first use of CUDA on the host; a container's own first use can't load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import PveLxcError
from .rules import CORE_DRIVERS, UVM_DRIVER, nvidia_majors, parse_proc_devices, read_proc_devices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .commands import Run

    Find = Callable[[str], str]  # the path of a program, or ""


def missing_drivers(proc_devices: str) -> list[str]:
    """Which of nvidia and nvidia-uvm the kernel doesn't have."""
    loaded = {name for names in nvidia_majors(parse_proc_devices(proc_devices)).values() for name in names}
    missing = [] if loaded.intersection(CORE_DRIVERS) else [CORE_DRIVERS[0]]
    return missing if UVM_DRIVER in loaded else [*missing, UVM_DRIVER]


def load_commands(missing: list[str], find: Find) -> list[list[str]]:
    """nvidia-modprobe also makes the nodes and respects the driver's options, so it goes first."""
    helper = find("nvidia-modprobe")
    if helper:
        return [[helper, "-u", "-c", "0"]]
    modprobe = find("modprobe")
    if not modprobe:
        raise PveLxcError(
            f"{', '.join(missing)} isn't loaded, and there is neither nvidia-modprobe nor modprobe here"
        )
    return [[modprobe, name] for name in missing]


def load(proc_devices: Path, run: Run, find: Find) -> list[str]:
    """Load what is missing and return it; nothing is believed until /proc/devices says it."""
    missing = missing_drivers(read_proc_devices(proc_devices))
    if not missing:
        return []
    commands = load_commands(missing, find)
    said = []
    for command in commands:
        code, out, err = run(command)
        words = " ".join((err or out).split())
        said.append(f"`{' '.join(command)}` ended with {code}{f': {words}' if words else ''}")
        if code != 0:
            break
    still = missing_drivers(read_proc_devices(proc_devices))
    if still:
        raise PveLxcError(
            f"{', '.join(still)} couldn't be loaded: {'; '.join(said)}. {proc_devices} doesn't list it. Look "
            "at `dmesg` and `dkms status` on the host"
        )
    return missing
