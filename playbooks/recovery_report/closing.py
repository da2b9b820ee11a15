"""The closing words of a run: at most 25 lines, and the table of where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recovery_report.timeline import WAITED_FOR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recovery_report.record import Record

MOST_LINES = 25
WIDTH = 118
# The name under which the controller's own lines are kept.
HERE = "here"
# Stages that say what later ones will do: at the end, these have said what they did.
SUPERSEDED = ("Check",)
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

    Problems come first, and lines that do not fit are counted, not dropped unseen.
    """
    table = time_table(rows) if rows else []
    said = [f"{p['node']}: FAILED in {p['stage']}: {_first_line(p['message'])}" for p in record.problems]
    node = ""
    lines = [entry for entry in record.lines if entry[0] not in SUPERSEDED]
    for stage, shown, text in sorted(lines, key=lambda entry: entry[1] == HERE):
        label = LABELS.get(stage, stage.lower())
        said.append(f"{shown if shown != node else '':<10} {label:<9} {text}")
        node = shown
    said.append(_changed(record.changed, "would change" if check else "changed  "))
    room = MOST_LINES - len(table)
    if len(said) > room:
        said = [*said[: room - 2], f"… and {len(said) - room + 1} lines more, in recovery.json", said[-1]]
    return [_clip(line) for line in [*said, *table]]


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
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
