"""What the playbook run said of itself: ``recovery.json``, which may be absent, old or half-written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from collector.door import NotOursError, UnreadableError, parse_json, require_known

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "recover-and-bench/recovery"
SCHEMA_VERSION = 1

Seconds = Annotated[float, Meta(ge=0)]


class Stage(Struct, frozen=True):
    stage: str
    seconds: Seconds
    ansible_s: Seconds = 0.0
    waited_s: dict[str, Seconds] = {}


class Cause(Struct, frozen=True):
    name: str
    severity: Literal["repairable", "needs_person", "note"]
    sentence: str


class Step(Struct, frozen=True):
    step: str
    changed: bool
    seconds: Seconds
    outcome: str


class Node(Struct, frozen=True):
    """What was found on a node and done to it. Other keys are the roles' own."""

    causes: tuple[Cause, ...] = ()
    steps: tuple[Step, ...] = ()


class Problem(Struct, frozen=True):
    node: str
    stage: str
    task: str
    message: str


class Line(Struct, frozen=True):
    stage: str
    node: str
    text: str


class Recovery(Struct, frozen=True):
    started_at: str
    ended_at: str
    outcome: str
    stages: tuple[Stage, ...] = ()
    nodes: dict[str, Node] = {}
    problems: tuple[Problem, ...] = ()
    lines: tuple[Line, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)


def read_recovery(path: Path) -> tuple[Recovery | None, str]:
    """Read the record of the last run; without one, the second part says why."""
    try:
        content = parse_json(path.read_bytes())
        if not isinstance(content, dict):
            return None, "recovery.json is no JSON object"
        require_known(content, schema=SCHEMA, newest=SCHEMA_VERSION)
        return msgspec.convert(content, Recovery), ""
    except FileNotFoundError:
        return None, "No record of a recovery run lies beside these results."
    except (NotOursError, UnreadableError, msgspec.ValidationError) as exc:
        return None, f"recovery.json can't be read: {exc}"
