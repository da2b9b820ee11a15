"""A table as it is read: titles, cells with their meaning, and the same figures as a frame."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from collector.formats import one_line

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["label", "value", "best", "hole", "note"]


@dataclass(frozen=True)
class Shown:
    """One cell of a table. ``sub`` is a second figure beside the first, ``file`` where it comes from."""

    text: str
    kind: Kind = "value"
    sub: str = ""
    file: str = ""
    detail: str = ""
    status: str = ""

    @property
    def plain(self) -> str:
        return f"{self.text} ({self.sub})" if self.sub else self.text


@dataclass(frozen=True)
class Table:
    """``key`` is unique within a section; ``columns`` of figures are set flush right."""

    key: str
    title: str
    note: str
    columns: tuple[str, ...]
    labels: int
    rows: tuple[tuple[Shown, ...], ...]


@dataclass(frozen=True)
class Chapter:
    """Tables of one subject with all their figures in one long frame."""

    name: str
    title: str
    tables: tuple[Table, ...]
    frame: pd.DataFrame


def to_markdown(table: Table) -> str:
    """A Markdown table whose columns line up in a plain editor too."""
    head = [escape(column) for column in table.columns]
    body = [[escape(shown.plain) for shown in row] for row in table.rows]
    widths = [max(3, *(len(line[index]) for line in [head, *body])) for index in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if index < table.labels else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * width if index < table.labels else "-" * (width - 1) + ":" for index, width in enumerate(widths)
    ]
    text = [f"### {escape(table.title)}", "", line(head), line(rule), *map(line, body)]
    if table.note:
        text += ["", escape(table.note)]
    return "\n".join(text) + "\n"


def escape(text: str) -> str:
    """Text of others may hold Markdown or HTML; it is shown, not obeyed."""
    return re.sub(r"([\\`*\[\]<>|#])", r"\\\1", one_line(text))
