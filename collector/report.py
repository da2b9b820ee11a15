"""One self-contained HTML file: opens from disk, asks no network, every number leads to its file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from collector import formats
from collector.charts import SERIES_COLOURS, Artist, Figure
from collector.coverage_text import reason, state, summary
from collector.environments import Difference, as_text, differences, flatten
from collector.headline import Headline, headlines
from collector.layout import Layout, write_whole
from collector.matrix import Matrix, build_matrix
from collector.recovery import Recovery, read_recovery
from collector.sections import Section, sections
from collector.tables import Points, chapters

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from collector.door import Judged
    from collector.merge import Merged
    from collector.table import Chapter


@dataclass(frozen=True)
class Identity:
    """What a configuration is, from its cells' fingerprints; several values where it changed."""

    configuration: str
    fields: dict[str, str]


@dataclass(frozen=True)
class SectionView:
    """A section with everything that the page shows of it."""

    section: Section
    chapters: tuple[Chapter, ...]
    headlines: tuple[Headline, ...]
    figures: tuple[Figure, ...]
    series: tuple[str, ...]
    matrix: Matrix

    @property
    def anchor(self) -> str:
        return quote(self.section.slug, safe="")

    @property
    def ok(self) -> int:
        return sum(coverage.ok for coverage in self.section.coverages)

    @property
    def planned(self) -> int:
        return sum(coverage.planned for coverage in self.section.coverages)

    @cached_property
    def period(self) -> str:
        """When the first cell began and the last one ended."""
        cells = [slot.row.cell for c in self.section.coverages for slot in c.slots if slot.row]
        if not cells:
            return ""
        return formats.period(min(c.started_at for c in cells), max(c.ended_at for c in cells))

    @cached_property
    def identities(self) -> tuple[Identity, ...]:
        """Engine, model, flags and GPUs of each configuration."""
        found: dict[str, dict[str, dict[str, None]]] = {}
        for coverage in self.section.coverages:
            for slot in coverage.slots:
                if slot.row:
                    fields = found.setdefault(slot.planned.configuration, {})
                    for key, value in slot.row.cell.fingerprint.identity.items():
                        if key != "workload":
                            fields.setdefault(key, {})[_shown(value)] = None
        return tuple(
            Identity(name, {key: ", then ".join(values) for key, values in fields.items()})
            for name, fields in found.items()
        )


@dataclass(frozen=True)
class Page:
    """The whole report."""

    views: tuple[SectionView, ...]
    differences: tuple[Difference, ...]
    refused: tuple[Judged, ...]
    recovery: Recovery | None
    recovery_note: str
    files: int

    @property
    def title(self) -> str:
        if len(self.views) == 1:
            return self.views[0].section.title
        names = {view.section.campaign for view in self.views}
        return names.pop() if len(names) == 1 else "All campaigns"


def write_report(layout: Layout, merged: Merged) -> Path:
    """Write results/report.html."""
    write_whole(layout.report, render(layout, merged))
    return layout.report


def render(layout: Layout, merged: Merged) -> str:
    link = _linker(layout)
    recovery, note = read_recovery(layout.recovery)
    page = Page(
        views=tuple(_view(section, link) for section in sections(merged)),
        differences=tuple(differences(merged.environments)),
        refused=merged.refused,
        recovery=recovery,
        recovery_note=note,
        files=len(merged.rows) + len(merged.refused),
    )
    return _environment(link).get_template("report.html.j2").render(page=page)


def _view(section: Section, link: Callable[[str], str]) -> SectionView:
    points = Points(section)
    artist = Artist(points, link, prefix=section.slug)
    return SectionView(
        section=section,
        chapters=chapters(points),
        headlines=headlines(points),
        figures=tuple(artist.figures()),
        series=tuple(artist.series),
        matrix=build_matrix(section),
    )


def _linker(layout: Layout) -> Callable[[str], str]:
    """Paths as links that work from the report's own place."""

    def link(path: str) -> str:
        return quote(str(path).removeprefix(f"{layout.root}/"))

    return link


def _environment(link: Callable[[str], str]) -> jinja2.Environment:
    # Results are data: names and reasons from files are escaped everywhere, and only our own SVG is not.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("collector", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        link=link,
        svg=lambda figure: Markup(figure.svg),  # noqa: S704 - drawn here; its texts were escaped by the drawing
        instant=formats.instant,
        seconds=formats.seconds,
        one_line=formats.one_line,
        plural=formats.plural,
        reason=reason,
        state=state,
        summary=summary,
    )
    environment.globals.update(series_colours=SERIES_COLOURS)
    return environment


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={text}" for key, text in flatten(value).items()) or "none"
    return as_text(value)
