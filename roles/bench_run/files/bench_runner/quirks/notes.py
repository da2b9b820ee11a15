"""What people are told of the quirks that concern a campaign."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from bench_runner.quirks.registry import CRASHES_THAT_PROVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_runner.decide import Task
    from bench_runner.quirks.registry import Quirks
    from bench_runner.quirks.store import Entry


class Note(Struct, frozen=True, kw_only=True):
    """A line of STATUS.md. `changed` where this run proposed, proved or retired it."""

    name: str
    state: str
    cells: int  # held back by it
    sentence: str
    changed: bool = False


def notes(
    quirks: Quirks, tasks: Sequence[Task], *, campaign: str, run: str, held: Counter[str]
) -> list[Note]:
    """The quirks that hold cells back, warn of one, or were seen in this campaign; by name."""
    warned = Counter(
        task.decision.warning.partition(":")[0] for task in tasks if task.decision.warning is not None
    )
    found = {
        quirk.name: Note(
            name=quirk.name, state="planned", cells=held[quirk.name], sentence=f"of the plan: {quirk.reason}"
        )
        for quirk in quirks.planned
        if held[quirk.name] or warned[quirk.name]
    }
    for entry in quirks.memory.quirks:
        here = any(each.campaign == campaign for each in (*entry.seen, *entry.fine))
        if held[entry.name] or warned[entry.name] or here:
            found[entry.name] = Note(
                name=entry.name,
                state=entry.state,
                cells=held[entry.name],
                sentence=sentence(entry),
                changed=any(each.run == run for each in (*entry.seen, *entry.fine)),
            )
    return [found[name] for name in sorted(found)]


def sentence(entry: Entry) -> str:
    """Its reason, how often it was seen and where, and what can be done."""
    places = dict.fromkeys(
        f"{each.engine_build or 'an unknown build'}, driver {each.driver_version or 'unknown'}"
        for each in entry.seen
    )
    often = "once" if len(entry.seen) == 1 else f"{len(entry.seen)} times"
    times = f"seen {often} on {'; '.join(places)}" if entry.seen else "never seen here"
    return f"{entry.reason}; {times}{_what_now(entry)}"


def _what_now(entry: Entry) -> str:
    if entry.state == "proposed":
        more = CRASHES_THAT_PROVE - len(entry.seen)
        return f"; applies after {more} more such crash, or now: bench_runner quirks accept {entry.name}"
    if entry.state == "active":
        return f"; tried again on another build or driver, or after: bench_runner quirks reject {entry.name}"
    if entry.state == "retired":
        last = max(entry.fine, key=lambda each: each.at)
        there = f"{last.engine_build}, driver {last.driver_version or 'unknown'}"
        return f"; retired {entry.changed_at[:10]}: it went well on {there}"
    return f"; rejected {entry.changed_at[:10]}"


def in_summary(found: Sequence[Note]) -> str:
    """What this run found out, as a summary's end."""
    words = {"proposed": "proposed", "active": "applies now", "retired": "retired"}
    changed = [f"{note.name} {words[note.state]}" for note in found if note.changed and note.state in words]
    return f"; quirk {', '.join(changed)}" if changed else ""
