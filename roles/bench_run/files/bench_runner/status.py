"""status.json and STATUS.md: where a campaign stands, derived from its journal; the story's todo list."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from bench_runner.quirks.notes import Note  # noqa: TC001 - msgspec reads types when it runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_runner.decide import Task
    from bench_runner.history import History
    from bench_runner.journal import Reason

STATUS_VERSION = 1
_TODO_STATUS = {
    "ok": "completed",
    "partial": "failed",
    "failed": "failed",
    "crashed": "failed",
    "skipped": "skipped",
    "interrupted": "pending",
    "pending": "pending",
}
_STATUS_ORDER = ("ok", "partial", "failed", "crashed", "skipped", "interrupted", "pending")
_MOST_NAMED = 5
_BOXES = {"completed": "x", "failed": "!", "skipped": "-", "in_progress": ">", "pending": " "}


class Todo(Struct, frozen=True, kw_only=True):
    content: str
    priority: str
    status: str
    cell: str
    reason: str


class Current(Struct, kw_only=True):
    """What the runner is at this moment doing."""

    cell: str
    title: str
    position: int
    total: int
    phase: str
    started_at: str
    elapsed_s: float
    remaining_s: float | None
    output_tps: float | None
    requests_done: int | None = None
    requests_planned: int | None = None
    detail: str | None = None  # how far a loading server, or a copy of models, is

    def sentence(self) -> str:
        if self.phase == "staging" and self.detail:
            return f"cell {self.position}/{self.total} {self.title}: staging {self.detail}"
        done = (
            f", {self.requests_done} done of {self.requests_planned} requests"
            if self.requests_planned
            else ""
        )
        phase = self.phase.replace("_", " ")
        detail = f", {self.detail}" if self.detail else ""
        return (
            f"cell {self.position}/{self.total} {self.title}: {phase}, {self.elapsed_s:.0f} s{done}{detail}"
        )


class Status(Struct, kw_only=True):
    schema: str
    schema_version: int
    campaign: str
    node: str
    state: str
    updated_at: str
    run: str
    message: str
    current: Current | None
    counts: dict[str, int]
    kept: int
    todos: list[Todo] | msgspec.Raw
    quirks: list[Note] | msgspec.Raw


class Standing(Struct, frozen=True, kw_only=True):
    """One cell's place in the status algebra, from the journal."""

    task: Task
    status: str
    reason: str
    run: str


def standings(
    tasks: Sequence[Task], history: History, *, current: str | None = None, left: Reason | None = None
) -> list[Standing]:
    """`current` is the cell that runs now: open, but not interrupted. `left` is why others stay pending."""
    found = []
    for task in tasks:
        past = history.cell(task.cell.name, task.content_hash)
        status = past.status or "pending"
        if past.is_open:
            status = "pending" if task.cell.name == current else "interrupted"
        reasons = past.reasons
        if task.decision.action == "wait":
            status, reasons = past.status or "pending", [*task.decision.reasons, *reasons]
        elif left is not None and status == "pending":
            reasons = [left]
        said = "; ".join(f"{reason.code}: {reason.detail}" for reason in reasons)
        found.append(Standing(task=task, status=status, reason=said, run=past.run))
    return found


def held_back(found: Sequence[Standing]) -> Counter[str]:
    """Cells that are skipped by each quirk."""
    marks = (one.reason for one in found if one.status == "skipped" and one.reason.startswith("quirk: "))
    return Counter(mark.split(":")[1].strip() for mark in marks)


def counts(found: Sequence[Standing]) -> dict[str, int]:
    totals = {status: sum(1 for one in found if one.status == status) for status in _STATUS_ORDER}
    return {status: total for status, total in totals.items() if total}


def todos(found: Sequence[Standing], *, baseline: str, current: str | None) -> list[Todo]:
    return [
        Todo(
            content=one.task.cell.title,
            priority="high" if one.task.cell.configuration == baseline else "medium",
            status="in_progress" if one.task.cell.name == current else _TODO_STATUS[one.status],
            cell=one.task.cell.name,
            reason=one.reason,
        )
        for one in found
    ]


def summary(found: Sequence[Standing], *, run: str, kept: int) -> str:
    """One line: how many, how they ended, and by name what isn't ok."""
    total = len(found)
    if kept == total:
        return f"{total} cells: all kept from before, nothing to run"
    measured = sum(1 for one in found if one.run == run and one.status not in {"skipped", "pending"})
    why = _pending_because(found)
    parts = ", ".join(
        f"{number} {status}{why if status == 'pending' else ''}" for status, number in counts(found).items()
    )
    now = f" ({measured} measured now)" if measured else ""
    bad = [one for one in found if one.status in {"partial", "failed", "crashed", "interrupted"}]
    named = [
        f"{one.task.cell.title} {one.status} ({one.reason.partition(':')[0]})" for one in bad[:_MOST_NAMED]
    ]
    if len(bad) > _MOST_NAMED:
        named.append(f"{len(bad) - _MOST_NAMED} more")
    return f"{total} cells: {parts}{now}" + (f"; {', '.join(named)}" if named else "")


def _pending_because(found: Sequence[Standing]) -> str:
    """` (deadline)`: why cells are pending at the end of a run that was not cut short."""
    pending = [one.reason.partition(":")[0] for one in found if one.status == "pending" and one.reason]
    codes = {code.replace("_", " "): number for code, number in Counter(pending).items()}
    if len(codes) > 1:
        return f" ({', '.join(f'{number} {code}' for code, number in codes.items())})"
    return "".join(f" ({code})" for code in codes)


def as_text(shown: Status) -> str:
    """STATUS.md: the same for a person."""
    lines = [
        f"# Campaign {shown.campaign} on {shown.node}: {shown.state}",
        "",
        shown.message,
        "",
        ", ".join(f"{status} {number}" for status, number in shown.counts.items()) + f" (kept {shown.kept})",
        "",
    ]
    if isinstance(shown.todos, list):
        for todo in shown.todos:
            why = f" — {todo.status}: {todo.reason}" if todo.reason else ""
            lines.append(f"- [{_BOXES[todo.status]}] {todo.content}{why}")
    if isinstance(shown.quirks, list) and shown.quirks:
        lines += ["", "## Known faults", ""]
        for note in shown.quirks:
            held = f", holds back {note.cells} cells" if note.cells else ""
            lines.append(f"- {note.name} ({note.state}{held}): {note.sentence}")
    return "\n".join(lines) + "\n"
