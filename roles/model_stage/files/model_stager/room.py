"""Is there room: tmpfs, inodes, memory, and the container's limit, against which the weights count."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from model_stager.errors import BadRequestError, NoRoomError
from model_stager.text import bytes_text, some_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model_stager.inventory import Staged

PAGE = 4096
IN_MEMORY = ("tmpfs", "ramfs")
SPARE_INODES = 16  # the model's folder, its manifest, proof, journal and their scratch files


@dataclass(frozen=True)
class Limit:
    """One thing that can be too small; the reserve of the engine is taken off already."""

    kind: str  # filesystem, memory, cgroup
    free: int
    ever: int  # when nothing else is there


@dataclass(frozen=True)
class Room:
    """What is free now and what there is at all, in bytes; None where there is no such limit."""

    filesystem: str
    free_bytes: int
    free_inodes: int | None
    memory_available: int | None
    cgroup_free: int | None
    size_bytes: int = 0
    memory_total: int | None = None
    cgroup_limit: int | None = None
    mount: str = ""

    @property
    def in_memory(self) -> bool:
        return self.filesystem in IN_MEMORY

    def after(self, freed: int) -> Room:
        """When so much more of the root is free."""
        memory, cgroup = (
            free + freed if free is not None and self.in_memory else free
            for free in (self.memory_available, self.cgroup_free)
        )
        return replace(self, free_bytes=self.free_bytes + freed, memory_available=memory, cgroup_free=cgroup)

    def limits(self, reserve_bytes: int) -> list[Limit]:
        """Memory limits what lies in memory only; the reserve is memory too."""
        found = [Limit("filesystem", self.free_bytes, self.size_bytes)]
        if not self.in_memory:
            return found
        for kind, free, ever in (
            ("memory", self.memory_available, self.memory_total),
            ("cgroup", self.cgroup_free, self.cgroup_limit),
        ):
            if free is not None:
                found.append(
                    Limit(kind, max(0, free - reserve_bytes), max(0, (ever or free) - reserve_bytes))
                )
        return found


def measure_room(root: Path, *, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Room:
    """Ask the kernel; the paths are parameters for tests."""
    if not root.is_dir():
        what = "is no folder" if root.exists() else "does not exist"
        raise BadRequestError(f"the folder to stage into, {root}, {what}")
    stat = os.statvfs(root)
    mount, filesystem = mount_of(root, (proc / "self" / "mountinfo").read_text(encoding="utf-8"))
    cgroup_free, cgroup_limit = _cgroup(proc, cgroups)
    return Room(
        filesystem=filesystem,
        free_bytes=stat.f_bavail * stat.f_frsize,
        free_inodes=stat.f_favail if stat.f_files else None,
        memory_available=_meminfo(proc, "MemAvailable"),
        cgroup_free=cgroup_free,
        size_bytes=stat.f_blocks * stat.f_frsize,
        memory_total=_meminfo(proc, "MemTotal"),
        cgroup_limit=cgroup_limit,
        mount=mount,
    )


def is_in_memory(path: Path) -> bool:
    return mount_of(path, Path("/proc/self/mountinfo").read_text(encoding="utf-8"))[1] in IN_MEMORY


def mount_of(path: Path, mountinfo: str) -> tuple[str, str]:
    """The mount that holds the path, and its kind: the longest mount point above it."""
    best, kind = "", "unknown"
    real = f"{path.resolve()}/"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        mount = before.split(" ")[4].encode().decode("unicode_escape").rstrip("/") + "/"
        if real.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, after.split(" ")[0]
    return best.rstrip("/") or "/", kind


def _meminfo(proc: Path, key: str) -> int | None:
    for line in (proc / "meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup(proc: Path, cgroups: Path) -> tuple[int | None, int | None]:
    """What the tightest limit above this process leaves, reclaimable cache included; and the lowest limit."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None, None
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = cgroups / own.strip("/")
    free: list[int] = []
    limits: list[int] = []
    while True:
        limit = _number(folder / "memory.max")
        used = _number(folder / "memory.current")
        if limit is not None and used is not None:
            free.append(max(0, limit - used + _reclaimable(folder / "memory.stat")))
            limits.append(limit)
        if folder in (cgroups, folder.parent):
            break
        folder = folder.parent
    return min(free, default=None), min(limits, default=None)


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


def records_bytes(files: int) -> int:
    """What manifest, proof, journal and progress take beside so many files, each while it is rewritten."""
    return 12 * PAGE + on_disk(768 * files)


def taken(sizes: Sequence[int]) -> int:
    """By a whole model of such files, and what lies beside it."""
    return sum(map(on_disk, sizes)) + records_bytes(len(sizes))


@dataclass(frozen=True)
class Asked:
    """What is to fit."""

    subject: str  # the model, or several
    root: Path
    need_bytes: int
    need_files: int = 0
    reserve_bytes: int = 0

    @property
    def need_inodes(self) -> int:
        return self.need_files + SPARE_INODES

    @property
    def needs(self) -> str:
        return "the models need" if " and " in self.subject else "the model needs"


def require_room(asked: Asked, room: Room, others: list[Staged]) -> None:
    """Raise one sentence that names the limit which is too small, and what could be done about it."""
    need = asked.need_bytes
    if room.free_bytes < need:
        raise no_room(asked, room, Limit("filesystem", room.free_bytes, room.size_bytes), others)
    if room.free_inodes is not None and room.free_inodes < asked.need_inodes:
        raise no_room(asked, room, Limit("inodes", room.free_inodes, 0), others)
    for limit in room.limits(asked.reserve_bytes):
        if limit.free < need:
            raise no_room(asked, room, limit, others)


def no_room(asked: Asked, room: Room, limit: Limit, others: Sequence[Staged], why: str = "") -> NoRoomError:
    """The sentence, and the same as data. `why` says what was tried or may not be done."""
    need = asked.need_inodes if limit.kind == "inodes" else asked.need_bytes
    reserve, needs = "", f"{asked.needs} {bytes_text(asked.need_bytes)}"
    if asked.reserve_bytes and limit.kind in ("memory", "cgroup"):
        reserve = f" and {bytes_text(asked.reserve_bytes)} are reserved for the engine"
    free = limit.free
    if reserve:  # what there is, not what the reserve leaves of it
        free = (room.memory_available if limit.kind == "memory" else room.cgroup_free) or 0
    said = {
        "filesystem": f"{asked.root} ({room.filesystem}) has {bytes_text(limit.free)} free, {needs}",
        "inodes": f"{asked.root} has {limit.free} free inodes, {asked.needs} {need}",
        "memory": f"the machine has {bytes_text(free)} of memory available, {needs} in {asked.root}{reserve}",
        "cgroup": f"the container's memory limit leaves {bytes_text(free)}, {needs} in {asked.root}{reserve}",
    }[limit.kind]
    there = f"; old models there: {some_text([one.sentence() for one in others])}" if others else ""
    advice = why or _advice(room, limit.kind, removable=bool(others))
    return NoRoomError(
        f"{asked.subject}: {said}{there}. {advice}",
        limit=limit.kind,
        needed=need + (asked.reserve_bytes if reserve else 0),
        free=free,
        removable=[one.name for one in others],
    )


def _advice(room: Room, kind: str, *, removable: bool) -> str:
    ways = []
    if kind == "filesystem" and room.filesystem == "tmpfs":
        ways.append(f"model_stage_grow_allowed lets {room.mount or 'it'} grow")
    elif kind in ("memory", "cgroup"):
        ways.append("raise the limit, or end what takes the memory")
    else:
        ways.append("make it larger")
    if removable:
        ways.append("model_stage_remove_allowed lets old models be removed, least recently used first")
    text = "; ".join(ways)
    return text[0].upper() + text[1:] if not text.startswith("model_stage") else text
