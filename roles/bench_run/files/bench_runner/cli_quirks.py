"""`quirks`: what is known of faults on this node, and a person's word on them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from bench_runner.errors import BenchError
from bench_runner.plan_check import load_plan, nearest
from bench_runner.quirks.notes import sentence
from bench_runner.quirks.registry import settle
from bench_runner.quirks.scope import has_expired
from bench_runner.quirks.store import read_memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench_runner.plan import Quirk
    from bench_runner.quirks.store import Memory

FILE = "quirks.json"


def known_quirks(root: Path) -> tuple[Memory, dict[str, Quirk]]:
    """The node's memory, and the quirks of all its campaigns' plans by name."""
    planned: dict[str, Quirk] = {}
    for path in sorted(root.glob("*/plan.yml")):
        planned.update({quirk.name: quirk for quirk in _quirks_of(path)})
    return read_memory(root / FILE), planned


def _quirks_of(plan: Path) -> list[Quirk]:
    try:
        return load_plan(plan).quirks
    except BenchError:
        return []  # a plan that is wrong is refused where it is used


def listed(root: Path) -> Iterator[str]:
    memory, planned = known_quirks(root)
    words = {entry.name for entry in memory.quirks if entry.subject is None}
    for entry in memory.quirks:
        if entry.name not in words:
            yield f"{entry.state:9s} {entry.name}: {sentence(entry)}"
    for name, quirk in sorted(planned.items()):
        word = memory.named(name) if name in words else None
        state = word.state if word and word.state == "rejected" else "planned"
        over = f" (expired {quirk.expires})" if has_expired(quirk) else ""
        yield f"{state:9s} {name}: {quirk.reason}{over}"


def as_json(root: Path) -> str:
    memory, planned = known_quirks(root)
    found = {"node": msgspec.to_builtins(memory), "planned": msgspec.to_builtins(list(planned.values()))}
    return json.dumps(found, indent=1)


def shown(root: Path, name: str) -> str:
    memory, planned = known_quirks(root)
    found: dict[str, Any] = {}
    entry = memory.named(name)
    if entry is not None:
        found["node"] = msgspec.to_builtins(entry)
    if name in planned:
        found["planned"] = msgspec.to_builtins(planned[name])
    if not found:
        raise _unknown(root, name)
    return json.dumps(found, indent=1)


def decided(root: Path, name: str, verb: str) -> str:
    _, planned = known_quirks(root)
    if verb == "accept" and name in planned and has_expired(planned[name]):
        over = planned[name].expires
        raise BenchError(f"{name} ended on {over}, as its plan says; to have it apply, change its day there")
    entry = settle(root / FILE, name, "active" if verb == "accept" else "rejected", planned.values())
    if entry is None:
        raise _unknown(root, name)
    what = "applies" if verb == "accept" else "does not apply any more"
    return f"{entry.name} {what} on this node, from the next run on: {entry.reason}"


def _unknown(root: Path, name: str) -> BenchError:
    memory, planned = known_quirks(root)
    names = {entry.name for entry in memory.quirks} | set(planned)
    return BenchError(f"no quirk {name!r} is known on this node; {nearest(name, names)}")
