"""What the lab needs of this machine, and one sentence for each thing that is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.lab import drivers, paths, room
from tests.lab.errors import LabError

PACKAGES = {
    "lxc-start": "lxc",
    "mmdebstrap": "mmdebstrap",
    "gcc": "gcc libc6-dev",
    "ip": "iproute2",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
}
NEEDED_DONORS = 2  # one before and one after nvidia-uvm has moved
MODULES = ("overlay", "bridge", "veth", "fuse", "cpuid", "msr", "tun")


def require_root() -> None:
    if os.geteuid() != 0:
        raise LabError("the lab makes namespaces, mounts and device nodes: run it as root")


def require_machine() -> None:
    """Check packages and the kernel; load the kernel modules that the lab uses."""
    require_root()
    missing = sorted({package for command, package in PACKAGES.items() if not shutil.which(command)})
    if missing:
        raise LabError(f"packages are missing: apt-get install --no-install-recommends {' '.join(missing)}")
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "--quiet", "--all", *MODULES], capture_output=True, check=False)
    room.cgroup2_root()
    filesystems = Path("/proc/filesystems").read_text().split()
    for kind in ("overlay", "fuse"):
        if kind not in filesystems:
            raise LabError(f"this kernel has no {kind} filesystem; `modprobe {kind}` must work")
    majors = {int(line.split()[0]) for line in _character_devices()}
    if drivers.NVIDIA_MAJOR not in majors:
        raise LabError(
            "this kernel has no character major 7 (vcs, CONFIG_VT); it plays the nvidia driver in the lab"
        )
    if not drivers.opens(drivers.NVIDIA_MAJOR, drivers.CTL_MINOR):
        raise LabError("the character device 7:128 (vcsa) does not open here; it plays nvidiactl in the lab")
    donors = [donor.driver for donor in drivers.usable_donors()]
    if len(donors) < NEEDED_DONORS:
        raise LabError(
            "nvidia-uvm is played by cpuid (character major 203), after a move by msr (202) or tun (10:200), "
            f"but here opens only {donors[0] if donors else 'none'}: `modprobe --all cpuid msr tun` must work"
        )


def _character_devices() -> list[str]:
    text = Path("/proc/devices").read_text().partition("\nBlock devices:")[0]
    return [line for line in text.splitlines()[1:] if line.strip()]


def require_room() -> None:
    if not room.inside():
        raise LabError(
            "this works inside the room only: `python -m tests.lab enter -- CMD…` (without CMD: a shell)"
        )


def require_lab() -> None:
    require_room()
    if not paths.FLEET_FILE.exists():
        raise LabError("no lab is up in this room: `python -m tests.lab up` first")
