"""Decide by the policy what is in memory now, and make room for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_stager.errors import BadRequestError
from model_stager.growing import grow
from model_stager.in_use import readers
from model_stager.inventory import staged
from model_stager.policy import Allow, Arrangement, Scene, Wanted, decide
from model_stager.removal import clear_leftovers, remove_staged
from model_stager.room import measure_room
from model_stager.text import bytes_text, some_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from model_stager.inventory import Staged

SCHEMA_VERSION = 1


def read_plan(path: Path) -> dict[str, Any]:
    """As the role writes it; see its README."""
    try:
        plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else f"it is no JSON: {exc}"
        raise BadRequestError(f"the plan {path} can't be read: {reason}") from exc
    if plan.get("schema_version") != SCHEMA_VERSION:
        version = plan.get("schema_version")
        raise BadRequestError(
            f"the plan {path} has schema version {version}, this program reads {SCHEMA_VERSION}"
        )
    return plan


def scene_of(plan: dict[str, Any], facts: Mapping[str, dict[str, Any]], number: int | None = None) -> Scene:
    """The plan as the role has written it, with what is known of each model that belongs in memory."""
    root = Path(plan["root"])
    wanted = {
        name: Wanted(name, fact["memory_bytes"], fact["come_bytes"], fact["copy_files"], fact["digest"])
        for name, fact in facts.items()
    }
    return Scene(
        root=root,
        room=measure_room(root),
        sets=plan["sets"] or [list(plan["models"])],
        wanted=wanted,
        old=staged(root),
        allow=Allow(**plan["allow"]),
        reserve_bytes=plan["reserve_bytes"],
        round=number,
    )


def arrange(scene: Scene) -> Arrangement:
    return decide(scene, lambda one: _used_by(scene.root / one.name))


def _used_by(folder: Path) -> str:
    return some_text([reader.sentence() for reader in readers(folder)])


def apply(scene: Scene, found: Arrangement) -> int:
    """Remove, then grow; returns the bytes that were freed."""
    freed = clear_leftovers(scene.root)
    for one in found.removals:
        freed += remove_staged(scene.root, one)
    if found.grow_to:
        grow(scene.room.mount, found.grow_to)
    return freed


def to_json(scene: Scene, found: Arrangement, *, done: bool) -> dict[str, Any]:
    """For the role's module: names, and the sentences of what was, or would be, done."""
    return {
        "now": list(found.now),
        "deferred": list(found.deferred),
        "rounds": [{"sets": list(one.sets), "models": list(one.names)} for one in found.rounds],
        "removed": [one.name for one in found.removals],
        "grown_to": found.grow_to,
        "sentences": sentences(scene, found, done=done),
        "announcements": {name: announcement(scene, found, name) for name in found.deferred},
    }


def sentences(scene: Scene, found: Arrangement, *, done: bool) -> list[str]:
    lines = []
    would = "" if done else "would be "
    if found.removals:
        lines.append(f"{would}removed: {_listed(found.removals)}")
    if found.grow_to:
        before, after = bytes_text(scene.room.size_bytes), bytes_text(found.grow_to)
        lines.append(f"{scene.room.mount} {would}grown from {before} to {after}, until the next reboot")
    return lines


def _listed(removals: Sequence[Staged]) -> str:
    return ", ".join(one.sentence() for one in removals)


def announcement(scene: Scene, found: Arrangement, name: str) -> str:
    """Why a model waits, and until when."""
    beside = some_text(
        [f"{other} ({bytes_text(scene.wanted[other].bytes)})" for other in found.now if other in scene.wanted]
    )
    size = bytes_text(scene.wanted[name].bytes)
    return (
        f"{name}: {size} do not fit beside {beside} in {scene.root}; "
        "it takes its place when its first configuration's turn comes"
    )
