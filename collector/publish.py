"""Write what was merged: CSV files, Markdown tables, the quarantine. Same files in, same bytes out."""

from __future__ import annotations

import csv
import io
import json
import shutil
from typing import TYPE_CHECKING, Any

from collector.columns import METRIC_COLUMNS, flat_metrics
from collector.environments import differences
from collector.layout import Layout, write_whole
from collector.table import Chapter, escape, to_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from collector.door import Judged
    from collector.merge import Merged, Row
    from collector.sections import Section

CELL_COLUMNS = (
    "campaign",
    "environment",
    "node",
    "host",
    "cell",
    "configuration",
    "baseline",
    "workload",
    "point",
    "point_unit",
    "repeat",
    "attempt",
    "current",
    "note",
    "status",
    "reason_code",
    "reason_detail",
    "started_at",
    "ended_at",
    "duration_s",
    "requests_planned",
    "requests_ok",
    "requests_failed",
    *METRIC_COLUMNS,
    "content_hash",
    "file_verdict",
    "file",
    "sha256",
)
DIRECT_COLUMNS = (
    "campaign",
    "node",
    "host",
    "cell",
    "configuration",
    "baseline",
    "workload",
    "point",
    "point_unit",
    "repeat",
    "attempt",
    "status",
    "started_at",
    "ended_at",
    "duration_s",
    "content_hash",
)
# Every subject there can be a file of.
CHAPTERS = frozenset(
    {
        "summary",
        "throughput",
        "latency",
        "accept-length",
        "context-curve",
        "concurrency-curve",
        "rate-curve",
        "replay-curve",
        "agentic-curve",
    }
)
FILE_COLUMNS = ("verdict", "reason", "file", "size_bytes", "sha256")


def write_merged(layout: Layout, merged: Merged) -> list[Path]:
    """Write cells.csv (a row a cell file), files.csv (every file's verdict) and environments.json."""
    cells = layout.merged / "cells.csv"
    files = layout.merged / "files.csv"
    environments = layout.merged / "environments.json"
    write_whole(cells, to_csv(CELL_COLUMNS, (_cell_row(layout, row) for row in merged.rows)))
    judged = [*(row.judged for row in merged.rows), *merged.refused]
    judged.sort(key=lambda file: str(file.path))
    write_whole(files, to_csv(FILE_COLUMNS, (_file_row(layout, file) for file in judged)))
    write_whole(environments, _environments_text(merged))
    return [cells, files, environments]


def write_quarantine(layout: Layout, merged: Merged) -> list[Path]:
    """Copy each corrupt file aside with its reason.

    Copied, not moved: what was pulled stays as the node has it, so that the next pull sees nothing
    missing and a verdict can be checked again. The content's digest in the name keeps every version.
    """
    aside = []
    for file in merged.refused:
        if file.verdict == "corrupt":
            relative = file.path.relative_to(layout.root)
            target = layout.quarantine / relative.parent / f"{relative.name}.{file.sha256[:12]}"
            put_aside(target, file.path, origin=relative.as_posix(), reason=file.reason, sha256=file.sha256)
            aside.append(target)
    return aside


def put_aside(target: Path, source: Path, *, origin: str, reason: str, sha256: str) -> None:
    """Keep a copy with a note beside it that says where it is from and what is wrong with it."""
    if not target.exists():
        temporary = target.with_name(f".{target.name}.partial")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, temporary)
        temporary.replace(target)
    note = {"origin": origin, "reason": reason, "sha256": sha256}
    write_whole(target.with_name(f"{target.name}.reason.json"), json.dumps(note, indent=1) + "\n")


def write_tables(
    layout: Layout, merged: Merged, content: Sequence[tuple[Section, Sequence[Chapter]]]
) -> list[Path]:
    """One Markdown and one CSV file a subject, with all campaigns and environments in it, each for itself."""
    by_name: dict[str, list[tuple[Section, Chapter]]] = {}
    for section, chapters in content:
        for chapter in chapters:
            by_name.setdefault(chapter.name, []).append((section, chapter))
    written = []
    for name, parts in by_name.items():
        text = [f"# {parts[0][1].title}", ""]
        for section, chapter in parts:
            text += [f"## {escape(section.title)}", "", *_environment_note(merged, section)]
            text += [to_markdown(table) for table in chapter.tables]
        markdown, table = layout.tables / f"{name}.md", layout.tables / f"{name}.csv"
        write_whole(markdown, "\n".join(text))
        frames = [chapter.frame for _section, chapter in parts if len(chapter.frame)]
        lines = [
            {str(key): value for key, value in row.items()}
            for frame in frames
            for row in frame.astype(object).to_dict("records")
        ]
        columns = list(parts[0][1].frame.columns)
        write_whole(table, to_csv(columns, lines))
        written += [markdown, table]
    for name in CHAPTERS - set(by_name):
        # Of an earlier plan: a table that stays would look like one of these results.
        (layout.tables / f"{name}.md").unlink(missing_ok=True)
        (layout.tables / f"{name}.csv").unlink(missing_ok=True)
    return written


def _environment_note(merged: Merged, section: Section) -> list[str]:
    if section.environment is None or len(merged.environments) == 1:
        return []
    fields = [difference.field for difference in differences(merged.environments)]
    return [f"Environments are kept apart because they differ in: {escape(', '.join(fields))}.", ""]


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Plain CSV. An unknown value is empty; the status column beside it says why."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="raise")
    writer.writeheader()
    writer.writerows({key: _plain(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _plain(value: object) -> object:
    if value is None or value != value:  # noqa: PLR0124 - NaN is the one value that differs from itself
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() else repr(value)
    return value


def _cell_row(layout: Layout, row: Row) -> dict[str, Any]:
    cell, judged = row.cell, row.judged
    reason = cell.reasons[0] if cell.reasons else None
    return {
        **{name: getattr(cell, name) for name in DIRECT_COLUMNS},
        "environment": row.environment,
        "current": row.current,
        "note": row.note,
        "reason_code": reason.code if reason else None,
        "reason_detail": reason.detail if reason else None,
        "requests_planned": cell.requests.planned,
        "requests_ok": cell.requests.ok,
        "requests_failed": cell.requests.failed,
        **flat_metrics(cell.metrics),
        "file_verdict": judged.verdict,
        "file": layout.relative(judged.path),
        "sha256": judged.sha256,
    }


def _file_row(layout: Layout, file: Judged) -> dict[str, Any]:
    return {
        "verdict": file.verdict,
        "reason": file.reason,
        "file": layout.relative(file.path),
        "size_bytes": file.size_bytes,
        "sha256": file.sha256,
    }


def _environments_text(merged: Merged) -> str:
    content = {
        "environments": [
            {
                "name": environment.name,
                "first_seen": environment.first_seen,
                "cells_ok": environment.cells_ok,
                "fields": environment.fields,
            }
            for environment in merged.environments
        ],
        "differences": {row.field: row.values for row in differences(merged.environments)},
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
