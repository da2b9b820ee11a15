"""What `stage` would do with a model, as a record for programs; reads only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from model_stager import lock
from model_stager.outcome import Outcome
from model_stager.placing import IN_PLACE, Placed, Wishes, place, require_placed
from model_stager.text import bytes_text, count_text, some_text

if TYPE_CHECKING:
    from model_stager.errors import NoRoomError
    from model_stager.request import Request


def check(
    request: Request, wishes: Wishes, *, deep: bool = False, before_bytes: int = 0, room_later: bool = False
) -> dict[str, Any]:
    """Raises what `stage` would raise; with `room_later` the room is judged for all models together."""
    started = time.perf_counter()
    placed = place(request, wishes, deep=deep)
    seconds = time.perf_counter() - started
    found = require_placed(placed, before_bytes=before_bytes, room_later=room_later)
    plan = placed.plan
    copies = plan.missing if placed.place != IN_PLACE else ()
    size = sum(entry.size_bytes or 0 for entry in copies)
    sources = sorted(set(found.values()))
    return {
        "model": request.name,
        "path": str(placed.path),
        "root": str(placed.request.root),
        "place": placed.place,
        "action": placed.action,
        "changes": placed.changes,
        "busy": lock.is_held(placed.request.state / "lock"),
        "why": placed.why,
        "digest": plan.manifest.digest,
        "files": len(plan.manifest.files),
        "names": [entry.name for entry in plan.manifest.files],
        "total_bytes": plan.manifest.total_bytes,
        "memory_bytes": placed.memory_bytes,
        "come_bytes": placed.come_bytes,
        "copy_files": len(copies),
        "copy_bytes": size,
        "from": sources,
        "gone_on": plan.reasons.told(),
        "seconds": round(seconds, 5),
        "summary": _would(placed, size, sources, seconds),
    }


def refused(request: Request, exc: NoRoomError) -> dict[str, Any]:
    """The same, for a model that does not fit."""
    error = {"code": exc.code, "message": str(exc), "data": exc.data()}
    return {"model": request.name, "action": "refused", "error": error}


def _would(placed: Placed, size: int, sources: list[str], seconds: float) -> str:
    request, plan = placed.request, placed.plan
    if placed.action == "none":
        outcome = Outcome("none", plan.manifest, [], seconds=seconds, because=placed.because)
        if placed.found is not None:
            outcome.folder, outcome.served_from = placed.found.folder, placed.found.source.label
        return outcome.sentence(request)
    name = f"{request.name}: {placed.because}" if placed.because else request.name
    reason, files = some_text(placed.why, 2), count_text(len(plan.manifest.files), "file")
    if placed.found is not None:
        where = f"{placed.found.source.label} on disk ({placed.path})"
        return f"{name}: would be served from {where}, after hashing {files} there ({reason})"
    if placed.action == "rehash":
        return f"{name}: would hash {files} in {request.root} again ({reason})"
    given = some_text(sources) or "what is there already"
    return f"{name}: would copy {bytes_text(size)} from {given} into {request.root} ({reason})"
