"""Which models share the memory, what makes way for them, and how far the tmpfs must grow: pure.

A set is what one configuration needs at the same time (target and draft). A round is a run of sets that fit
together; the next round takes its place when the plan gets there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from model_stager.room import PAGE, Asked, Limit, Room, no_room
from model_stager.text import bytes_text, some_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Callable

    from model_stager.inventory import Staged

SPARE = 1 << 20  # manifest, proof, progress and journal, when the tmpfs is made just large enough


@dataclass(frozen=True)
class Allow:
    """What the operator lets the stager do."""

    remove: bool = False
    grow: bool = False
    switch: bool = False


@dataclass(frozen=True)
class Wanted:
    """A model of the plan that belongs in memory."""

    name: str
    bytes: int
    come: int  # of them, what is not there yet
    files: int = 0  # that are not there yet
    digest: str = ""

    @property
    def have(self) -> int:
        return max(0, self.bytes - self.come)


@dataclass(frozen=True)
class Round:
    """Sets, by their place in the plan, that are in memory together."""

    sets: tuple[int, ...]
    names: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class Arrangement:
    """What to do now, and what waits."""

    rounds: tuple[Round, ...]
    current: int
    removals: tuple[Staged, ...] = ()
    grow_to: int = 0  # 0: it is large enough

    @property
    def now(self) -> tuple[str, ...]:
        return self.rounds[self.current].names if self.rounds else ()

    @property
    def deferred(self) -> tuple[str, ...]:
        names = {name: None for part in self.rounds for name in part.names}
        return tuple(name for name in names if name not in self.now)


def split(sets: Sequence[Sequence[str]], sizes: Mapping[str, int], capacity: int) -> tuple[Round, ...]:
    """The longest runs of sets that fit; a set that is too large alone is a round of its own.

    Models without a size (served from a disk) take no part.
    """
    rounds: list[Round] = []
    for place, names in enumerate(sets):
        wanted = [name for name in names if name in sizes]
        last = rounds[-1] if rounds else None
        union = tuple(dict.fromkeys([*(last.names if last else ()), *wanted]))
        need = sum(sizes[name] for name in union)
        if last and (need <= capacity or set(union) == set(last.names)):
            rounds[-1] = Round((*last.sets, place), union, need)
        else:
            alone = tuple(dict.fromkeys(wanted))
            rounds.append(Round((place,), alone, sum(sizes[name] for name in alone)))
    return tuple(rounds)


def choose(shortage: int, candidates: Sequence[Staged]) -> tuple[Staged, ...]:
    """In their order until it is enough, then without those that turn out not to be needed."""
    chosen: list[Staged] = []
    for one in candidates:
        if sum(other.bytes for other in chosen) >= shortage:
            break
        chosen.append(one)
    freed = sum(one.bytes for one in chosen)
    for one in reversed(chosen[:]):
        if freed - one.bytes >= shortage:
            chosen.remove(one)
            freed -= one.bytes
    return tuple(chosen)


@dataclass(frozen=True)
class Scene:
    """All that a decision depends on."""

    root: Path
    room: Room
    sets: Sequence[Sequence[str]]
    wanted: Mapping[str, Wanted]
    old: Sequence[Staged]  # what lies in the root, least recently used first
    allow: Allow
    reserve_bytes: int = 0
    round: int | None = None  # the set that is asked for; None: what is whole already, else the first

    def is_wanted(self, one: Staged) -> bool:
        """With these contents; an older revision under the same name is not."""
        model = self.wanted.get(one.model)
        return model is not None and (
            one.digest == model.digest if one.finished else one.name.endswith(model.digest[:12])
        )

    def is_stale(self, one: Staged) -> bool:
        """What is left of another revision's copy needs no leave: staging the model would remove it."""
        model = self.wanted.get(one.model)
        return model is not None and one.is_stale(model.digest)

    def net(self, one: Staged) -> Staged:
        """With the bytes that are won when it goes: files that the wanted revision shares come again."""
        model = self.wanted.get(one.model)
        return replace(one, bytes=max(0, one.bytes - model.have)) if model and one.finished else one

    @property
    def growable(self) -> bool:
        return self.allow.grow and self.room.filesystem == "tmpfs"

    def limits(self) -> list[Limit]:
        """Those that can't be moved: not the size of a tmpfs that may grow."""
        found = self.room.limits(self.reserve_bytes)
        fixed = [limit for limit in found if not (self.growable and limit.kind == "filesystem")]
        return fixed or found


def decide(scene: Scene, used_by: Callable[[Staged], str]) -> Arrangement:
    """Raises NoRoomError with what would have to be allowed, ended or made larger.

    `used_by` says who reads a folder, "" for nobody: asked only about what would have to go.
    """
    tight = min(scene.limits(), key=lambda limit: limit.free)
    sizes = {name: model.bytes for name, model in scene.wanted.items()}
    others = [scene.net(one) for one in scene.old if not scene.is_wanted(one)]
    if sum(model.come for model in scene.wanted.values()) <= tight.free:
        rounds = split(scene.sets, sizes, sum(sizes.values()))
        return _with_growth(scene, Arrangement(rounds, 0))
    busy = {one.name: used_by(one) for one in (scene.old if scene.allow.switch else others)}
    idle = [one for one in others if not busy[one.name] and (scene.allow.remove or scene.is_stale(one))]
    capacity = tight.free + sum(model.have for model in scene.wanted.values())
    capacity += sum(one.bytes for one in idle)
    rounds = split(scene.sets, sizes, capacity)
    _require_ever(scene, rounds, others)
    if len(rounds) > 1 and not scene.allow.switch:
        names = list(scene.wanted)
        raise _refusal(scene, names, tight, others, busy, together=True)
    current = _current(scene, rounds)
    shortage = sum(scene.wanted[name].come for name in rounds[current].names) - tight.free
    waiting = [
        one
        for one in scene.old
        if scene.allow.switch
        and scene.is_wanted(one)
        and one.model not in rounds[current].names
        and not busy[one.name]
    ]
    removals = choose(shortage, [*idle, *waiting]) if shortage > 0 else ()
    if sum(one.bytes for one in removals) < shortage:
        raise _refusal(scene, list(rounds[current].names), tight, others, busy, together=False)
    return _with_growth(scene, Arrangement(rounds, current, removals))


def _current(scene: Scene, rounds: Sequence[Round]) -> int:
    if scene.round is not None:
        return next(place for place, one in enumerate(rounds) if scene.round in one.sets)
    whole = (
        place
        for place, one in enumerate(rounds)
        if one.names and not any(scene.wanted[name].come for name in one.names)
    )
    return next(whole, 0)


def _with_growth(scene: Scene, found: Arrangement) -> Arrangement:
    need = sum(scene.wanted[name].come for name in found.now)
    files = sum(scene.wanted[name].files for name in found.now)
    inodes = scene.room.free_inodes
    asked = _asked(scene, list(found.now), need, files)
    if files and inodes is not None and inodes < asked.need_inodes:
        raise no_room(asked, scene.room, Limit("inodes", inodes, 0), ())
    lacks = need - scene.room.free_bytes - sum(one.bytes for one in found.removals)
    if lacks <= 0 or not scene.growable:
        return found
    size = scene.room.size_bytes + lacks + SPARE
    return Arrangement(found.rounds, found.current, found.removals, -(-size // PAGE) * PAGE)


def _asked(scene: Scene, names: Sequence[str], need: int, files: int = 0) -> Asked:
    return Asked(" and ".join(names), scene.root, need, files, scene.reserve_bytes)


def _require_ever(scene: Scene, rounds: Sequence[Round], others: Sequence[Staged]) -> None:
    """A set that can't be there at the same time even in an empty root will not fit later either."""
    least = min(scene.limits(), key=lambda limit: limit.ever)
    for one in rounds:
        if least.ever and one.bytes > least.ever:
            why = (
                f"{scene.root} can hold {bytes_text(least.ever)} at most: set `in_memory: false` for one of "
                "them, and it is served from a disk"
            )
            asked = _asked(scene, one.names, one.bytes)
            raise no_room(asked, scene.room, least, others, why)


def _refusal(  # noqa: PLR0913 - each is one part of the sentence
    scene: Scene,
    names: list[str],
    tight: Limit,
    others: Sequence[Staged],
    busy: Mapping[str, str],
    *,
    together: bool,
) -> Exception:
    """What is short, and each way out: a variable, a process to end, a limit to raise."""
    missing = [name for name in names if scene.wanted[name].come] or names
    ways = []
    if together:
        ways.append("model_stage_switch_allowed lets them take each other's place between configurations")
    if tight.kind == "filesystem" and scene.room.filesystem == "tmpfs" and not scene.allow.grow:
        ways.append(f"model_stage_grow_allowed lets {scene.room.mount or scene.root} grow")
    if others and not scene.allow.remove:
        ways.append("model_stage_remove_allowed lets old models be removed, least recently used first")
    used = [f"{name} is in use by {who}" for name, who in busy.items() if who]
    if used:
        ways.append(f"{some_text(used)}: end it, then run again")
    if tight.kind != "filesystem":
        ways.append("raise the limit, or end what takes the memory")
    why = "; ".join(ways) or "Make it larger, or remove what is no longer needed"
    need = sum(scene.wanted[name].come for name in missing)
    return no_room(_asked(scene, missing, need), scene.room, tight, others, why)
