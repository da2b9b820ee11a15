"""The stand-in drivers: which existing character devices of this kernel play NVIDIA's, and their settings.

`Settings` is the "hardware" of one host: a JSON file that its boot reads (kernel/).
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.lab.errors import LabError

DRIVER_VERSION = "580.95.05"
GPU_NAME = "NVIDIA RTX PRO 6000 Blackwell"
NVIDIA_MAJOR = (
    7  # vcs: minors 0 and 1 open as the GPUs, 128 (vcsa) as nvidiactl; the real 254 and 255 do not open
)
CTL_MINOR = 128
# A major that nobody has now: the story's number for nvidia-uvm before the reboot.
OLD_UVM_MAJOR = 509


@dataclass(frozen=True)
class Donor:
    """An existing driver whose device opens, but in no container by LXC's defaults: it can be nvidia-uvm."""

    major: int
    minor: int
    tools_minor: int
    driver: str


UVM_DONORS = (
    Donor(203, 0, 1, "cpu/cpuid"),
    Donor(202, 0, 1, "cpu/msr"),
    Donor(10, 200, 200, "misc"),  # /dev/net/tun
)


@dataclass(frozen=True)
class Gpu:
    minor: int
    pci: str
    uuid: str
    name: str = GPU_NAME


@dataclass(frozen=True)
class Settings:
    uvm: Donor
    gpus: tuple[Gpu, ...]
    nvidia_major: int = NVIDIA_MAJOR
    ctl_minor: int = CTL_MINOR
    driver_version: str = DRIVER_VERSION
    # Whether the driver was built for the running kernel; without it nothing of it is loaded.
    driver_built: bool = True
    uvm_loaded_at_boot: bool = True
    # Device nodes that a boot does not make; nvidia-modprobe makes them.
    missing_at_boot: tuple[str, ...] = ()
    # Donors do not show under their own names, so that a moved uvm leaves a free number behind as in life.
    hidden_majors: tuple[int, ...] = ()


def make_gpus(host_number: int, count: int) -> tuple[Gpu, ...]:
    """GPUs with stable ids: a host has the same ones after each reboot."""
    return tuple(
        Gpu(
            minor=minor,
            pci=f"0000:{0x41 + 0x20 * minor:02x}:00.0",
            uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'lab-{host_number}-{minor}')}",
        )
        for minor in range(count)
    )


def make_settings(host_number: int, gpus: int, donors: tuple[Donor, ...]) -> Settings:
    hidden = tuple(donor.major for donor in donors if donor.driver != "misc")
    return Settings(donors[0], make_gpus(host_number, gpus), hidden_majors=hidden)


def usable_donors() -> tuple[Donor, ...]:
    """The donors that open on this machine."""
    return tuple(donor for donor in UVM_DONORS if opens(donor.major, donor.minor))


def opens(major: int, minor: int) -> bool:
    """Whether a character device with these numbers opens here (tried on a node in a private place)."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        # /dev/shm may be mounted nodev: then nothing could be learnt there, so /dev is the other place to try
        for parent in (folder, "/dev"):
            node = Path(parent) / f"lab-probe-{os.getpid()}"
            os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(major, minor))
            try:
                os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK))
            except PermissionError:
                continue
            except OSError:
                return False
            else:
                return True
            finally:
                node.unlink()
    return False


def next_donor(settings: Settings, donors: tuple[Donor, ...], wanted: str) -> Donor:
    """The donor that nvidia-uvm gets at the next boot: `new` (any other one) or a number."""
    if wanted == "new":
        others = [donor for donor in donors if donor.major != settings.uvm.major]
        if others:
            return others[0]
        raise LabError(
            f"nvidia-uvm has {settings.uvm.major} and no other stand-in driver opens on this machine"
        )
    for donor in donors:
        if str(donor.major) == wanted:
            return donor
    choices = ", ".join(str(donor.major) for donor in donors)
    raise LabError(f"--uvm-major {wanted}: only an existing driver can play nvidia-uvm; here: new, {choices}")


def with_uvm(settings: Settings, wanted: str, donors: tuple[Donor, ...]) -> Settings:
    return replace(settings, uvm=next_donor(settings, donors, wanted))


def save_settings(settings: Settings, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / "drivers.json.partial"
    partial.write_text(json.dumps(asdict(settings), indent=1) + "\n")
    partial.rename(folder / "drivers.json")


def load_settings(folder: Path) -> Settings:
    raw = json.loads((folder / "drivers.json").read_text())
    return replace(
        Settings(**raw),
        uvm=Donor(**raw["uvm"]),
        gpus=tuple(Gpu(**gpu) for gpu in raw["gpus"]),
        missing_at_boot=tuple(raw["missing_at_boot"]),
        hidden_majors=tuple(raw["hidden_majors"]),
    )
