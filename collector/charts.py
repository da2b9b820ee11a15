"""Charts as SVG that takes its colours from the page, so that one drawing serves light and dark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import altair as alt
import pandas as pd
import vl_convert

from collector.formats import POINT_WORDS, WORKLOAD_TITLES, figure, point_title, speedup
from collector.tables import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from collector.records import Workload
    from collector.tables import Points

WIDTH, HEIGHT = 400, 230
FONT_SIZE = 14
# Colours that nothing else has: they stand for the page's variables until the drawing is done.
SERIES_COLOUR = 0xA0B000
INK, MUTED, GRID = "#a0c001", "#a0c002", "#a0c003"
VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)"}
SERIES_COLOURS = 8
# vl-convert resolves links; a base that is surely no real one is cut off again.
LINK_BASE = "https://report.invalid/"
# Numbers above bars stay readable up to so many bars.
MAX_LABELLED_BARS = 12


@dataclass(frozen=True)
class Figure:
    """A drawn chart. ``missing`` names what could not be drawn and why."""

    title: str
    svg: str
    description: str
    missing: tuple[str, ...]


class Artist:
    """Draws the figures of one section."""

    def __init__(self, points: Points, link: Callable[[str], str], *, prefix: str) -> None:
        self.prefix = prefix
        self.points = points
        self.link = link
        self.series = [points.label(node, name).text for node, name in points.row_names()]

    def figures(self) -> list[Figure]:
        """The charts that there are figures for, in reading order."""
        workloads = self.points.section.workloads
        drawn = [self._bars(workload) for workload in ("code", "agentic") if workload in workloads]
        if "concurrency" in workloads:
            drawn.append(self._lines("concurrency", "output_tps", "All clients together", "tok/s in total"))
            drawn.append(self._lines("concurrency", "output_tps_per_user", "Each client", "tok/s per user"))
        if "rate" in workloads:
            drawn.append(self._lines("rate", "ttft_ms_p50", "Time to first token", "TTFT p50, ms"))
        if "context" in workloads:
            drawn.append(self._lines("context", "ttft_ms_p50", "Time to first token", "TTFT p50, ms"))
            drawn.append(self._lines("context", "output_tps", "Speed after a long prompt", "tok/s"))
        return [figure for figure in drawn if figure is not None]

    def _bars(self, workload: Workload) -> Figure | None:
        data, missing = self._data(workload, "output_tps", "tok/s")
        if not data:
            return None
        x = alt.X("point:N", sort=None, title=POINT_WORDS[workload], axis=alt.Axis(labelAngle=0))
        offset = alt.XOffset("series:N", sort=self.series)
        y = alt.Y("value:Q", title="tok/s", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
        base = alt.Chart(_values(data)).encode(x=x, xOffset=offset, y=y)
        layers: list[Any] = [
            base.mark_bar(cornerRadiusEnd=2).encode(
                color=self._colour(), href="link:N", description="description:N"
            )
        ]
        if len(data) <= MAX_LABELLED_BARS:
            layers.append(base.mark_text(dy=-6, fontSize=12, color=INK, aria=False).encode(text="label:N"))
        if missing:
            holes = alt.Chart(_values(missing)).mark_text(text="✕", dy=-8, color=MUTED, fontSize=14)
            layers.append(
                holes.encode(
                    x=alt.X("point:N", sort=None),
                    xOffset=offset,
                    y=alt.datum(0),
                    href="link:N",
                    description="description:N",
                )
            )
        title = f"{WORKLOAD_TITLES[workload]}: tokens per second"
        order = [f"{value:,}" for value in self.points.section.workloads[workload]]
        chart = alt.layer(*layers).encode(x=x.sort(order))
        return self._figure(title, chart, data, missing)

    def _lines(self, workload: Workload, column: str, title: str, unit: str) -> Figure | None:
        data, missing = self._data(workload, column, unit)
        if not data:
            return None
        values = self.points.section.workloads[workload]
        axis = alt.Axis(values=list(values), format=",d", labelOverlap=True)
        x = alt.X(
            "at:Q",
            title=POINT_WORDS[workload],
            scale=alt.Scale(type="log", base=2, domain=[values[0] / 1.15, values[-1] * 1.15], nice=False),
            axis=axis,
        )
        y = alt.Y("value:Q", title=unit, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
        base = alt.Chart(_values(data)).encode(x=x, y=y, color=self._colour())
        lines = base.mark_line(strokeWidth=2.5, aria=False)
        dots = base.mark_circle(size=75, opacity=1).encode(href="link:N", description="description:N")
        return self._figure(f"{WORKLOAD_TITLES[workload]}: {title.lower()}", lines + dots, data, missing)

    def _data(
        self, workload: Workload, column: str, unit: str
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What can be drawn, and what can't with its reason."""
        data, missing = [], []
        for series, (node, name) in zip(self.series, self.points.row_names(), strict=True):
            for point in self.points.section.workloads[workload]:
                row = Row(node, name, point)
                shown = self.points.shown(row, workload, column)
                where = f"{series}, {point_title(workload, point)}"
                entry = {
                    "series": series,
                    "point": f"{point:,}",
                    "at": point,
                    "link": f"{LINK_BASE}{quote(self.link(shown.file))}" if shown.file else "",
                }
                value = self.points.value(row, workload, column)
                if shown.kind != "value" or pd.isna(value):
                    missing.append({**entry, "description": f"{where}: {shown.text}"})
                    continue
                against = self._against(row, workload) if column == "output_tps" else ""
                note = f" ({shown.sub})" if shown.sub else ""
                data.append(
                    {
                        **entry,
                        "value": float(value),
                        "label": figure(value) if value < 100 else f"{value:.0f}",  # noqa: PLR2004 - room
                        "description": f"{where}: {figure(value)} {unit}{against}{note}",
                    }
                )
        return data, missing

    def _against(self, row: Row, workload: Workload) -> str:
        ratio = self.points.value(row, workload, "speedup")
        if pd.isna(ratio) or row.configuration in self.points.section.baselines:
            return ""
        return f", {speedup(ratio)} the baseline"

    def _colour(self) -> alt.Color:
        colours = [f"#{SERIES_COLOUR + index:06x}" for index in range(len(self.series))]
        return alt.Color("series:N", scale=alt.Scale(domain=self.series, range=colours), legend=None)

    def _figure(
        self,
        title: str,
        chart: alt.LayerChart,
        data: Sequence[dict[str, Any]],
        missing: Sequence[dict[str, Any]],
    ) -> Figure:
        spec = chart.properties(width=WIDTH, height=HEIGHT, background="transparent").configure(**_CONFIG)
        svg = vl_convert.vegalite_to_svg(cast("dict[str, Any]", spec.to_dict()))
        described = "; ".join(entry["description"] for entry in data)
        svg = own_ids(page_colours(svg), f"{self.prefix}-{re.sub(r'[^a-z]+', '-', title.lower())}")
        return Figure(title, svg, described, tuple(entry["description"] for entry in missing))


def _values(rows: Sequence[dict[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=list(rows))


def page_colours(svg: str) -> str:
    """Let the page give colours and font, and drop what only a stand-alone file needs."""
    for colour, variable in VARIABLES.items():
        svg = svg.replace(f'"{colour}"', f'"{variable}"')
    svg = re.sub(r'(fill|stroke)="#(a0b0[0-9a-f]{2})"', _series_variable, svg)
    svg = svg.replace(f'xlink:href="{LINK_BASE}', 'href="').replace('font-family="sans-serif" ', "")
    return re.sub(r'<svg [^>]*?viewBox="([^"]+)">', r'<svg viewBox="\1" role="img">', svg, count=1)


def own_ids(svg: str, prefix: str) -> str:
    """Number a drawing's ids by their place in it: the drawing library counts on from drawing to drawing."""
    ids = {name: f"{prefix}-{number}" for number, name in enumerate(dict.fromkeys(_ID.findall(svg)))}
    return re.sub(r'(?<= id=")[^"]+|(?<=url\(#)[^)]+', lambda match: ids.get(match[0], match[0]), svg)


_ID = re.compile(r' id="([^"]+)"')


def _series_variable(match: re.Match[str]) -> str:
    index = int(match[2], 16) - SERIES_COLOUR
    return f'data-series="{index}" {match[1]}="var(--s{index % SERIES_COLOURS})"'


_CONFIG: dict[str, Any] = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "labelFontSize": FONT_SIZE,
        "titleFontSize": FONT_SIZE,
        "titleFontWeight": "normal",
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "labelPadding": 6,
        "titlePadding": 10,
    },
    "axisX": {"grid": False, "ticks": False},
    "axisY": {"domain": False, "ticks": False, "grid": True},
    "bar": {"discreteBandSize": {"band": 0.92}},
    "scale": {"bandPaddingInner": 0.18, "bandPaddingOuter": 0.1},
}
