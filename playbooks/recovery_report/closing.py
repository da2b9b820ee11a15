"""The closing words of a run: at most 25 lines, and the table of where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recovery_report.timeline import WAITED_FOR
from recovery_report.words import from_here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recovery_report.record import Record

MOST_LINES = 25
WIDTH = 118
# The name under which the controller's own lines are kept.
HERE = "here"
# Stages that come before the story: at the end, the later ones have said what they found and did.
SUPERSEDED = ("Validate", "Wait", "Check")
# Where the room is short, the lines of these stages go first: the others tell whether the fleet works.
LEAST_TELLING = ("Restore", "Stage", "Deploy", "Repair")
# What a stage's line is called in the closing words, where the stage's own name would puzzle.
LABELS = {
    "Diagnose": "found",
    "Repair": "repaired",
    "Restore": "settings",
    "Stage": "staged",
    "Deploy": "deployed",
    "Bench": "measured",
    "Collect": "tables",
}


def time_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of a table by stage: seconds in all, Ansible's own, and each thing waited for."""
    kinds = [kind for kind in WAITED_FOR if any(row["waited_s"].get(kind) for row in rows)]
    header = ["stage", "seconds", "ansible", *(kind.replace("_", " ") for kind in kinds)]
    body = [
        [
            row["stage"],
            f"{row['seconds']:.1f}",
            f"{row['ansible_s']:.1f}",
            *(f"{row['waited_s'][kind]:.1f}" if kind in row["waited_s"] else "" for kind in kinds),
        ]
        for row in rows
    ]
    total = [
        "in all",
        f"{sum(row['seconds'] for row in rows):.1f}",
        f"{sum(row['ansible_s'] for row in rows):.1f}",
        *(f"{sum(row['waited_s'].get(kind, 0.0) for row in rows):.1f}" for kind in kinds),
    ]
    table = [header, *body, total]
    widths = [max(len(line[column]) for line in table) for column in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def closing_lines(record: Record, rows: Sequence[dict[str, Any]], *, check: bool = False) -> list[str]:
    """What was broken, repaired and measured, then the time table; never more than `MOST_LINES`.

    Problems come first, then node by node; lines that do not fit are counted, not dropped unseen.
    """
    table = time_table(rows) if rows else []
    problems = [f"{p['node']}: FAILED in {p['stage']}: {_first_line(p['message'])}" for p in record.problems]
    changed = _changed(record.changed, "would change" if check else "changed  ")
    told = [entry for entry in record.lines if entry[0] not in SUPERSEDED]
    room = MOST_LINES - len(table)
    kept = told
    for stage in LEAST_TELLING:
        # The last two are the lines of what is left out, and of what changed.
        if len(problems) + len(kept) + 1 + (kept != told) <= room:
            break
        kept = [entry for entry in kept if entry[0] != stage]
    said = [*problems, *_by_node(kept)]
    if len(said) + 1 + (kept != told) > room:
        said = said[: room - 2]
    missing = len(problems) + len(told) - len(said)
    said += [f"… and {missing} lines more, in recovery.json"] if missing else []
    return [_clip(line) for line in [*said, changed, *table]]


def _by_node(entries: Sequence[tuple[str, str, str]]) -> list[str]:
    """Each node's lines together, its name on the first; the controller's own come last."""
    said, before = [], ""
    for stage, node, text in sorted(entries, key=lambda entry: (entry[1] == HERE, entry[1])):
        said.append(f"{node if node != before else '':<10} {LABELS.get(stage, stage.lower()):<9} {text}")
        before = node
    return said


def _changed(changed: Mapping[str, int], word: str) -> str:
    if not changed:
        return f"{word} nothing"
    counts = [
        f"{count} {'thing' if count == 1 else 'things'} {node if node == HERE else f'on {node}'}"
        for node, count in sorted(changed.items())
    ]
    return f"{word} {', '.join(counts)}"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no message"


def _clip(line: str) -> str:
    line = from_here(line)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
