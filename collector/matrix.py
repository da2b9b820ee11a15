"""The coverage matrix: each configuration against each point, by status."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collector.coverage_text import reason
from collector.formats import POINT_WORDS, WORKLOAD_TITLES, one_line

if TYPE_CHECKING:
    from collector.coverage import Slot
    from collector.sections import Section

# A sign beside the colour, so that nobody needs the colour.
SIGNS = {
    "ok": "✓",
    "partial": "◐",
    "failed": "✕",
    "crashed": "✕",
    "corrupt": "✕",
    "skipped": "\N{EN DASH}",
    "interrupted": "…",
    "running": "▶",
    "not pulled": "?",
    "other environment": "↗",
    "not run": "·",
    "not planned": " ",
}


@dataclass(frozen=True)
class Square:
    """One point of one configuration with all its repeats."""

    status: str
    sign: str
    text: str
    file: str


@dataclass(frozen=True)
class Group:
    title: str
    unit: str
    points: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    groups: tuple[Group, ...]
    rows: tuple[tuple[str, tuple[Square, ...]], ...]
    legend: tuple[tuple[str, str], ...]


def build_matrix(section: Section) -> Matrix:
    """A square a point; where repeats differ, the worst speaks and the text tells all."""
    slots: defaultdict[tuple[str, str, str, int], list[Slot]] = defaultdict(list)
    for coverage in section.coverages:
        for slot in coverage.slots:
            planned = slot.planned
            key = (coverage.campaign.node, planned.configuration, planned.workload, planned.point)
            slots[key].append(slot)
    columns = [(name, point) for name, points in section.workloads.items() for point in points]
    several = len(section.nodes) > 1
    rows = tuple(
        (
            f"{name} @ {node}" if several else name,
            tuple(_square(slots[node, name, workload, point]) for workload, point in columns),
        )
        for name in section.configurations
        for node in section.nodes
    )
    groups = tuple(
        Group(WORKLOAD_TITLES[name], POINT_WORDS[name], tuple(f"{point:,}" for point in points))
        for name, points in section.workloads.items()
    )
    seen = {square.status for _label, squares in rows for square in squares}
    legend = tuple((status, sign) for status, sign in SIGNS.items() if status in seen)
    return Matrix(groups, rows, legend)


def _square(slots: list[Slot]) -> Square:
    if not slots:
        return Square("not planned", SIGNS["not planned"], "not planned", "")
    worst = next((slot for slot in slots if slot.status != "ok"), slots[0])
    if len(slots) > 1:
        good = sum(slot.status == "ok" for slot in slots)
        text = f"{good} of {len(slots)} repeats ok"
        if worst.status != "ok":
            text += f"; {worst.status}: {reason(worst)}"
    elif worst.status == "ok":
        text = "ok"
    else:
        text = f"{worst.status}: {reason(worst)}"
    return Square(
        worst.status, SIGNS[worst.status], one_line(text), str(worst.file.path) if worst.file else ""
    )
