"""What was asked for, what there is, and the reason for every hole."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec

from collector.formats import one_line
from collector.plan import PlannedCell
from collector.records import CellName, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collector.campaigns import Campaign
    from collector.door import Judged
    from collector.merge import Merged, Row
    from collector.records import Cell, Event, Reason, Todo

SlotStatus = Literal[
    "ok",
    "partial",
    "failed",
    "crashed",
    "skipped",
    "interrupted",
    "corrupt",
    "running",
    "not pulled",
    "other environment",
    "not run",
]
"""A cell's own status, or what stands where no believable file is."""


@dataclass(frozen=True)
class Slot:
    """A cell that was asked for (or found) and what there is of it."""

    planned: PlannedCell
    status: SlotStatus
    code: str = ""
    detail: str = ""
    row: Row | None = None
    file: Judged | None = None

    @property
    def hole(self) -> str:
        """How the hole is shown in a table: never blank, never 0."""
        return f"{self.status} ({self.code.replace('_', ' ')})" if self.code else self.status


@dataclass(frozen=True)
class Coverage:
    """All slots of one campaign, in the order of its plan."""

    campaign: Campaign
    environment: str | None
    slots: tuple[Slot, ...]

    @cached_property
    def counts(self) -> dict[str, int]:
        return dict(Counter(slot.status for slot in self.slots))

    @property
    def holes(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if slot.status != "ok")

    @property
    def planned(self) -> int:
        return len(self.slots)

    @property
    def ok(self) -> int:
        return self.counts.get("ok", 0)


@dataclass(frozen=True)
class _Known:
    """All that is known about the cells of one campaign, by cell name."""

    campaign: Campaign
    environment: str | None
    rows: Mapping[str, Sequence[Row]]
    corrupt: Mapping[str, Judged]
    todos: Mapping[str, Todo]


def cover(merged: Merged, campaign: Campaign, *, environment: str | None = None) -> Coverage:
    """Fill each planned cell. Without an environment, a good cell of any environment counts."""
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in merged.current:
        if (row.cell.node, row.cell.campaign) == (campaign.node, campaign.name):
            rows[row.cell.cell].append(row)
    known = _Known(
        campaign,
        environment,
        rows,
        {
            file.path.stem: file
            for file in campaign.files
            if file.verdict == "corrupt" and file.path.parent == campaign.folder / "cells"
        },
        {todo.cell: todo for todo in campaign.status.todos} if campaign.status else {},
    )
    return Coverage(campaign, environment, tuple(_fill(cell, known) for cell in _asked_for(known)))


def _asked_for(known: _Known) -> list[PlannedCell]:
    """Cells in plan order, then those only known from todos, journal or files, by name."""
    plan = known.campaign.plan
    cells = {cell.name: cell for cell in plan.cells} if plan else {}
    others = {*known.todos, *known.campaign.journal.last_word, *known.corrupt, *known.rows} - set(cells)
    found = [cell for cell in map(parse_cell_name, others) if cell is not None]
    found.sort(key=lambda cell: (cell.configuration, cell.workload, cell.point, cell.repeat))
    return [*cells.values(), *found]


def _fill(cell: PlannedCell, known: _Known) -> Slot:
    rows = known.rows.get(cell.name, ())
    here = [row for row in rows if known.environment is None or row.environment in (known.environment, None)]
    best = max(here, key=lambda row: (row.cell.status == "ok", row.cell.ended_at), default=None)
    if best is not None:
        code, detail = _why(best.cell)
        return Slot(cell, best.cell.status, code, detail, best, best.judged)
    elsewhere = next((row for row in rows if row.cell.status == "ok"), None)
    if elsewhere is not None:
        name = f"{elsewhere.environment}"
        return Slot(
            cell, "other environment", name, f"measured in environment {name}", None, elsewhere.judged
        )
    if cell.name in known.corrupt:
        file = known.corrupt[cell.name]
        return Slot(cell, "corrupt", "", file.reason, None, file)
    event = known.campaign.journal.last_word.get(cell.name)
    if event is not None:
        return _from_journal(cell, known.campaign, event)
    todo = known.todos.get(cell.name)
    if todo is not None:
        return _from_todo(cell, todo)
    return Slot(cell, "not run")


def _from_journal(cell: PlannedCell, campaign: Campaign, event: Event) -> Slot:
    code, detail = _first(event.reasons)
    if event.event == "cell_skipped":
        return Slot(cell, "skipped", code, detail)
    if event.event == "cell_ended":
        return Slot(cell, "not pulled", "", f"the journal says {event.status}; the file has not been pulled")
    status = campaign.status
    if status and status.state == "running" and status.current and status.current.cell == cell.name:
        return Slot(cell, "running", "", f"{status.current.phase} since {status.current.started_at}")
    return Slot(cell, "interrupted", "", f"started at {event.at}, no end in the journal")


def _from_todo(cell: PlannedCell, todo: Todo) -> Slot:
    words: dict[str, SlotStatus] = {
        "skipped": "skipped",
        "failed": "failed",
        "in_progress": "running",
        "completed": "not pulled",
    }
    return Slot(cell, words.get(todo.status, "not run"), "", todo.reason)


def _why(cell: Cell) -> tuple[str, str]:
    """Reason code and sentence; of a crash, the signature says more than that the server crashed."""
    code, detail = _first(cell.reasons)
    signature = (cell.evidence or {}).get("signature")
    if cell.status == "crashed" and isinstance(signature, str) and signature != "unknown":
        return one_line(signature, 60), detail
    return code, detail


def _first(reasons: tuple[Reason, ...]) -> tuple[str, str]:
    return (reasons[0].code, reasons[0].detail) if reasons else ("", "")


def parse_cell_name(name: str) -> PlannedCell | None:
    """Read ``tp1-auto.code.64.r1``; anything else is no cell of this program."""
    try:
        parts = msgspec.convert(name, CellName).rsplit(".", 3)
        workload = msgspec.convert(parts[1], Workload)
    except msgspec.ValidationError:
        return None
    return PlannedCell(parts[0], workload, int(parts[2]), int(parts[3][1:]))
