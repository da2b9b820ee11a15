"""Where a model belongs: into memory, or on a disk because it can never fit or was not meant to."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model_stager import in_place
from model_stager.errors import NoRoomError, NoSourceError
from model_stager.plan import FULL_CHECK, bytes_to_come, make_plan, partial_folder, require_possible
from model_stager.resolve import require_sources
from model_stager.room import measure_room, taken
from model_stager.text import bytes_text

if TYPE_CHECKING:
    from model_stager.plan import Plan
    from model_stager.request import Request

MEMORY, IN_PLACE, DISK = "memory", "in_place", "disk"


@dataclass(frozen=True)
class Wishes:
    """What the operator has set about places."""

    in_memory: bool = True
    may_grow: bool = False
    state_dir: Path | None = None  # None: nothing is served from where it lies
    disk_root: Path | None = None
    reader: str = ""

    @property
    def active(self) -> bool:
        return not self.in_memory or self.state_dir is not None or self.disk_root is not None

    def disk(self, because: str) -> in_place.Disk:
        return in_place.Disk(self.state_dir or Path(), self.reader, because)


@dataclass(frozen=True)
class Placed:
    """Where the model goes, and how far it is from being there."""

    place: str
    request: Request
    plan: Plan
    because: str = ""  # why not in memory
    found: in_place.Found | None = None
    deep: bool = False

    @property
    def action(self) -> str:
        if self.found is not None:
            return "rehash" if self.found.why or self.deep else "none"
        return self.plan.action

    @property
    def changes(self) -> bool:
        """A full check that finds nothing wrong is no change."""
        if self.found is not None:
            return bool(self.found.why)
        return self.action == "stage" or (self.action == "rehash" and not self.deep)

    @property
    def why(self) -> list[str]:
        return [self.found.why or FULL_CHECK] if self.found is not None else self.plan.why

    @property
    def path(self) -> Path:
        return self.found.folder if self.found else self.request.published

    @property
    def memory_bytes(self) -> int:
        """What it takes of the root in memory when it is whole."""
        if self.place != MEMORY:
            return 0
        return taken([entry.size_bytes or 0 for entry in self.plan.manifest.files])

    @property
    def come_bytes(self) -> int:
        if self.place == IN_PLACE:
            return 0
        return bytes_to_come(self.plan.missing, partial_folder(self.request, self.plan.manifest))


def place(request: Request, wishes: Wishes, *, deep: bool = False) -> Placed:
    """Reads only; raises NoRoomError when it can't be in memory and may not be elsewhere."""
    plan = make_plan(request, deep=deep)
    because = _why_not_in_memory(request, plan, wishes) if wishes.active else ""
    if not because:
        return Placed(MEMORY, request, plan, deep=deep)
    if wishes.state_dir is not None:
        try:
            found = in_place.look(request.name, plan, wishes.disk(because))
            return Placed(IN_PLACE, request, plan, because, found, deep)
        except NoSourceError as exc:
            why = str(exc).partition(": ")[2]
    else:
        why = "nothing may be served from where it lies"
    if wishes.disk_root is None:
        ways = ["set model_stage_disk_root to a folder on a disk that can hold it"]
        if wishes.in_memory and _would_fit(request, plan, dataclasses.replace(wishes, may_grow=True)):
            ways.insert(0, f"model_stage_grow_allowed lets {request.root} grow")
        raise NoRoomError(
            f"{request.name}: {because}, and {why}. {'; or '.join(ways)}",
            limit="filesystem",
            needed=plan.manifest.total_bytes,
        )
    moved = dataclasses.replace(request, root=wishes.disk_root)
    return Placed(DISK, moved, make_plan(moved, deep=deep, sources=plan.sources), because, deep=deep)


def _would_fit(request: Request, plan: Plan, wishes: Wishes) -> bool:
    return not _why_not_in_memory(request, plan, wishes)


def _why_not_in_memory(request: Request, plan: Plan, wishes: Wishes) -> str:
    size = bytes_text(plan.manifest.total_bytes)
    if not wishes.in_memory:
        return f"{size} are not to be in memory (in_memory: false)"
    room = measure_room(request.root)
    need = taken([entry.size_bytes or 0 for entry in plan.manifest.files])
    growable = wishes.may_grow and room.filesystem == "tmpfs"
    for limit in room.limits(request.reserve_bytes):
        # Where the reserve alone is more than there is, no disk helps: that is refused as a lack of room.
        if need <= limit.ever or not limit.ever or (growable and limit.kind == "filesystem"):
            continue
        reserve = (
            f", with {bytes_text(request.reserve_bytes)} for the engine" if request.reserve_bytes else ""
        )
        where, has = {
            "filesystem": (str(request.root), bytes_text(room.size_bytes)),
            "memory": ("memory", bytes_text(room.memory_total or 0) + reserve),
            "cgroup": ("the container's memory limit", bytes_text(room.cgroup_limit or 0) + reserve),
        }[limit.kind]
        return f"{size} does not fit into {where} ({has})"
    return ""


def require_placed(placed: Placed, *, before_bytes: int, room_later: bool) -> dict[str, str]:
    """Each missing file has a source and there is room. Returns file → source."""
    plan, request = placed.plan, placed.request
    if placed.action != "stage":
        return {}
    if placed.place == MEMORY and room_later:  # all models of a plan together are `arrange`'s question
        return require_sources(request, plan.manifest, list(plan.missing), plan.sources, plan.reasons)
    partial = partial_folder(request, plan.manifest)
    return require_possible(request, plan, plan.missing, partial, before_bytes=before_bytes)
