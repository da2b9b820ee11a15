"""Which processes hold the GPUs open, and in which container: read from /proc on the host."""

from __future__ import annotations

import pwd
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_CONTAINER = re.compile(r"/(?:lxc/|lxc\.payload\.)(\d+)(?:/|$)", re.MULTILINE)
_UNIT = re.compile(r"([^/]+\.(?:service|scope))(?:/|$)")


@dataclass(frozen=True)
class Holder:
    """A process that has a GPU's device node open. `vmid` is "" for one of the host itself."""

    pid: int
    command: str
    user: str
    vmid: str
    unit: str

    def __str__(self) -> str:
        where = f"container {self.vmid}" if self.vmid else "the host"
        unit = f", {self.unit}" if self.unit else ""
        return f"{self.command} (pid {self.pid}, user {self.user}, {where}{unit})"


def gpu_holders(dev_dir: Path, proc: Path = Path("/proc")) -> list[Holder]:
    devices = _gpu_devices(dev_dir)
    folders = sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name))
    found = (_holder(folder, devices) for folder in folders)
    return [holder for holder in found if holder]


def _gpu_devices(dev_dir: Path) -> set[int]:
    """Device numbers, not majors alone: a major may serve others too."""
    found = [path.stat() for path in (*dev_dir.glob("nvidia*"), *dev_dir.glob("nvidia*/*"))]
    return {status.st_rdev for status in found if stat.S_ISCHR(status.st_mode)}


def _holder(folder: Path, devices: Collection[int]) -> Holder | None:
    """None as well for a process that ends meanwhile."""
    try:
        return _describe(folder) if any(device in devices for device in _open_devices(folder)) else None
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _open_devices(folder: Path) -> Iterator[int]:
    for link in (folder / "fd").iterdir():
        try:
            # The link leads to the open file itself, in whatever namespace it was opened.
            status = link.stat()
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode):
            yield status.st_rdev


def _describe(folder: Path) -> Holder:
    group = (folder / "cgroup").read_text(errors="replace")
    containers = _CONTAINER.findall(group)
    units = _UNIT.findall(group.rstrip())
    return Holder(
        int(folder.name),
        (folder / "comm").read_text(errors="replace").strip(),
        _user(folder.stat().st_uid),
        containers[-1] if containers else "",
        units[-1] if units else "",
    )


def _user(uid: int) -> str:
    """By the host's names: an unprivileged container's users show as numbers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
