"""Is there room: tmpfs, inodes, memory, and the container's limit, against which the weights count."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from model_stager.errors import BadRequestError, NoRoomError
from model_stager.text import bytes_text, some_text

PAGE = 4096
SPARE_INODES = 16  # the model's folder, its manifest, proof, journal and their scratch files


@dataclass(frozen=True)
class Room:
    """What is free now, in bytes; None where there is no such limit."""

    filesystem: str
    free_bytes: int
    free_inodes: int | None
    memory_available: int | None
    cgroup_free: int | None

    @property
    def in_memory(self) -> bool:
        return self.filesystem in ("tmpfs", "ramfs")


def measure_room(root: Path, *, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Room:
    """Ask the kernel; the paths are parameters for tests."""
    if not root.is_dir():
        what = "is no folder" if root.exists() else "does not exist"
        raise BadRequestError(f"the folder to stage into, {root}, {what}")
    stat = os.statvfs(root)
    filesystem = filesystem_of(root, (proc / "self" / "mountinfo").read_text(encoding="utf-8"))
    return Room(
        filesystem=filesystem,
        free_bytes=stat.f_bavail * stat.f_frsize,
        free_inodes=stat.f_favail if stat.f_files else None,
        memory_available=_memory_available(proc),
        cgroup_free=_cgroup_free(proc, cgroups),
    )


def filesystem_of(path: Path, mountinfo: str) -> str:
    """The kind of filesystem that holds the path, by the longest mount point above it."""
    best, kind = "", "unknown"
    real = f"{path.resolve()}/"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        mount = before.split(" ")[4].encode().decode("unicode_escape").rstrip("/") + "/"
        if real.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, after.split(" ")[0]
    return kind


def _memory_available(proc: Path) -> int | None:
    for line in (proc / "meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_free(proc: Path, cgroups: Path) -> int | None:
    """What the tightest limit above this process leaves, reclaimable cache included."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = cgroups / own.strip("/")
    free: list[int] = []
    while True:
        limit = _number(folder / "memory.max")
        used = _number(folder / "memory.current")
        if limit is not None and used is not None:
            free.append(max(0, limit - used + _reclaimable(folder / "memory.stat")))
        if folder in (cgroups, folder.parent):
            break
        folder = folder.parent
    return min(free, default=None)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there, or "max"
        return None


def _reclaimable(path: Path) -> int:
    try:
        pairs = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
        return sum(int(value) for key, value in pairs if key in ("inactive_file", "active_file"))
    except (OSError, ValueError):
        return 0


def on_disk(size: int) -> int:
    """Whole pages, as tmpfs counts."""
    return -(-size // PAGE) * PAGE


def require_room(  # noqa: PLR0913 - each is one fact of the sentence
    name: str,
    root: Path,
    room: Room,
    *,
    need_bytes: int,
    need_files: int,
    reserve_bytes: int,
    others: list[str],
) -> None:
    """Raise one sentence that names the limit which is too small, and what could be removed."""
    hint = f"; also there: {some_text(others)}" if others else ""
    need = bytes_text(need_bytes)
    if room.free_bytes < need_bytes:
        raise NoRoomError(
            f"{name}: {root} ({room.filesystem}) has {bytes_text(room.free_bytes)} free, "
            f"the model needs {need}{hint}. Make it larger, or remove what is no longer needed"
        )
    if room.free_inodes is not None and room.free_inodes < need_files + SPARE_INODES:
        raise NoRoomError(
            f"{name}: {root} has {room.free_inodes} free inodes, the model needs {need_files}{hint}"
        )
    if not room.in_memory:
        return
    wanted = need_bytes + reserve_bytes
    reserve = f" and {bytes_text(reserve_bytes)} are reserved for the engine" if reserve_bytes else ""
    for free, what in (
        (room.memory_available, "the machine has {} of memory available"),
        (room.cgroup_free, "the container's memory limit leaves {}"),
    ):
        if free is not None and free < wanted:
            raise NoRoomError(
                f"{name}: {what.format(bytes_text(free))}, the model needs {need} in {root}{reserve}{hint}. "
                "Raise the limit, or end or remove what takes the memory"
            )
