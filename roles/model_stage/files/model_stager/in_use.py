"""Who reads a folder's files now: processes that map them or hold them open, found by device and inode.

Names would not do: an engine in a mount namespace of its own sees the same files under other paths.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model_stager.errors import InUseError
from model_stager.text import some_text

if TYPE_CHECKING:
    from collections.abc import Iterator

Identity = tuple[int, int]
SHOWN = 60


@dataclass(frozen=True)
class Reader:
    """A process with a file below the folder."""

    pid: int
    command: str
    unit: str

    def sentence(self) -> str:
        unit = f", {self.unit}" if self.unit else ""
        return f"pid {self.pid} ({self.command}{unit})"


def readers(folder: Path, *, proc: Path = Path("/proc")) -> list[Reader]:
    """All processes but this one; InUseError when this user may not look at them."""
    wanted = set(_identities(folder))
    if not wanted:
        return []
    found, hidden = [], 0
    for process in proc.iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            if wanted.isdisjoint(_mapped(process)) and wanted.isdisjoint(_opened(process)):
                continue
        except PermissionError:
            hidden += 1
            continue
        except OSError:  # it ended while we looked
            continue
        found.append(_reader(process))
    if hidden and not found and os.geteuid() != 0:
        raise InUseError(
            f"whether a process reads {folder} can't be seen by uid {os.geteuid()} "
            f"({hidden} processes belong to others): run as root"
        )
    return found


def require_unused(folder: Path, *, proc: Path = Path("/proc")) -> None:
    found = readers(folder, proc=proc)
    if found:
        who = some_text([reader.sentence() for reader in found])
        raise InUseError(f"{folder} is in use by {who}: it is not removed")


def _identities(folder: Path) -> Iterator[Identity]:
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(place, name))  # noqa: PTH118 - strings are what os.walk gives
                yield found.st_dev, found.st_ino


def _mapped(process: Path) -> Iterator[Identity]:
    """`7f00-7f10 r--s 00000000 00:1b 1234 /dev/shm/…`: device and inode of each mapping of a file."""
    with (process / "maps").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            fields = line.split(maxsplit=5)
            if fields[4] != "0":
                major, _, minor = fields[3].partition(":")
                yield os.makedev(int(major, 16), int(minor, 16)), int(fields[4])


def _opened(process: Path) -> Iterator[Identity]:
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed while we looked
            found = descriptor.stat()
            yield found.st_dev, found.st_ino


def _reader(process: Path) -> Reader:
    command = unit = ""
    with contextlib.suppress(OSError):
        raw = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        command = raw if len(raw) <= SHOWN else f"{raw[:SHOWN]}…"
    with contextlib.suppress(OSError):
        own = (process / "cgroup").read_text(encoding="utf-8").strip().rpartition(":")[2]
        unit = next((part for part in reversed(own.split("/")) if part.endswith((".service", ".scope"))), "")
    return Reader(int(process.name), command or "unknown", unit)
