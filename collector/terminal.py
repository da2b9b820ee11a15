"""Tables on a terminal. Names are data: nothing in them is taken for markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from collector.formats import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from collector.sections import Section
    from collector.table import Chapter, Shown, Table

NUMBER_WIDTH = 6
STYLES = {"label": "bold", "value": "", "best": "bold green", "hole": "yellow", "note": "dim"}


def show(console: Console, content: Sequence[tuple[Section, Sequence[Chapter]]]) -> None:
    """Print every table of every section."""
    for section, chapters in content:
        console.rule(Text(one_line(section.title), style="bold"))
        for chapter in chapters:
            for table in chapter.tables:
                console.print(_rich(table))
                if table.note:
                    console.print(Text(table.note, style="dim"))
                console.print()


def _rich(table: Table) -> RichTable:
    drawn = RichTable(title=Text(table.title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(table.columns):
        drawn.add_column(
            Text(one_line(column)),
            justify="left" if index < table.labels else "right",
            overflow="fold",
            no_wrap=index == 0,
            # A number is never cut in two.
            min_width=NUMBER_WIDTH,
        )
    for row in table.rows:
        drawn.add_row(*(_text(shown) for shown in row))
    return drawn


def _text(shown: Shown) -> Text:
    text = Text(one_line(shown.text), style=STYLES[shown.kind])
    if shown.sub:
        text.append(f" {one_line(shown.sub)}", style="dim")
    return text
