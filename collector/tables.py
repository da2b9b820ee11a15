"""The tables an operator reads. One function, one table; holes are named, never blank and never 0."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import pandas as pd

from collector.formats import POINT_WORDS, WORKLOAD_TITLES, figure, point_title, speedup
from collector.frames import points_frame
from collector.table import Chapter, Shown, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from collector.records import Workload
    from collector.sections import Section

NOT_GIVEN = "not given"
LATENCY = (
    ("TTFT p50", "ttft_ms_p50"),
    ("TTFT p90", "ttft_ms_p90"),
    ("TTFT p99", "ttft_ms_p99"),
    ("TPOT p50", "tpot_ms_p50"),
    ("TPOT p90", "tpot_ms_p90"),
    ("TPOT p99", "tpot_ms_p99"),
    ("chunk gap p99", "chunk_gap_ms_p99"),
    ("end to end p50", "e2e_ms_p50"),
)


class Row(NamedTuple):
    """What a row of a table is about."""

    node: str
    configuration: str
    point: int


class Points:
    """The points of a section, looked up by what they are of."""

    def __init__(self, section: Section) -> None:
        self.section = section
        self.frame = points_frame(section)
        records = cast("list[dict[str, object]]", self.frame.to_dict("records"))
        self._by_key = {(p["node"], p["configuration"], p["workload"], p["point"]): p for p in records}

    def row_names(self) -> list[tuple[str, str]]:
        """Node and configuration of each row, all nodes of a configuration together."""
        return [(node, name) for name in self.section.configurations for node in self.section.nodes]

    def label(self, node: str, configuration: str) -> Shown:
        name = f"{configuration} @ {node}" if len(self.section.nodes) > 1 else configuration
        sub = "baseline" if configuration in self.section.baselines else ""
        return Shown(name, "label", sub)

    def shown(self, row: Row, workload: Workload, column: str, *, with_speedup: bool = False) -> Shown:
        """One figure of a point, or the reason why there is none."""
        point = self._by_key.get((row.node, row.configuration, workload, row.point))
        if point is None:
            return Shown("not planned", "note", status="not planned")
        file, detail = str(point["file"]), str(point["detail"])
        n, planned = cast("int", point["n"]), cast("int", point["planned"])
        if n == 0:
            return Shown(str(point["hole"]), "hole", "", file, detail, str(point["status"]))
        value = cast("float", point[column])
        if pd.isna(value):
            return Shown(NOT_GIVEN, "note", "", file, "", "ok")
        notes = []
        if with_speedup and row.configuration not in self.section.baselines:
            ratio = cast("float", point["speedup"])
            notes.append("no baseline" if pd.isna(ratio) else speedup(ratio))
        if n < planned:
            notes.append(f"n={n} of {planned}")
            detail = f"{point['hole']}: {detail}" if detail else str(point["hole"])
        elif n > 1:
            notes.append(f"n={n}")
        return Shown(figure(value), "value", ", ".join(notes), file, detail, "ok")

    def best(self, workload: Workload, point: int, column: str = "output_tps") -> float:
        here = self.frame[(self.frame["workload"] == workload) & (self.frame["point"] == point)]
        return float(here[column].max())

    def value(self, row: Row, workload: Workload, column: str) -> float:
        point = self._by_key.get((row.node, row.configuration, workload, row.point))
        return float("nan") if point is None else cast("float", point[column])

    def of(self, workload: Workload, columns: Sequence[str]) -> pd.DataFrame:
        """The figures of one workload for the CSV file, with campaign and environment."""
        frame = self.frame[self.frame["workload"] == workload]
        return self.long(frame, columns)

    def long(self, frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
        environment = self.section.environment.name if self.section.environment else ""
        key = ["node", "configuration", "workload", "point", "planned", "n", "status", "hole"]
        return frame[[*key, *columns]].assign(campaign=self.section.campaign, environment=environment)[
            ["campaign", "environment", *key, *columns]
        ]


def chapters(points: Points) -> tuple[Chapter, ...]:
    """Every table of a section, in reading order."""
    workloads = points.section.workloads
    found = [throughput(points), latency(points), accept_length(points)]
    if "context" in workloads:
        found.append(context_curve(points))
    if "concurrency" in workloads:
        found.append(concurrency_curve(points))
    if "rate" in workloads:
        found.append(open_curve(points, "rate"))
    if "replay" in workloads:
        found.append(open_curve(points, "replay"))
    if "agentic" in workloads:
        found.append(agentic(points))
    return tuple(found)


def _by_configuration(  # noqa: PLR0913 - what differs between two tables of one shape, named at each call
    points: Points, workload: Workload, show: Callable[[Row], Shown], *, key: str, title: str, note: str
) -> Table:
    """A row a configuration, a column a point of the workload."""
    values = points.section.workloads[workload]
    rows = tuple(
        (points.label(node, name), *(show(Row(node, name, value)) for value in values))
        for node, name in points.row_names()
    )
    header = ("configuration", *(point_title(workload, value) for value in values))
    return Table(f"{key}-{workload}", f"{WORKLOAD_TITLES[workload]}: {title}", note, header, 1, rows)


def throughput(points: Points) -> Chapter:
    """Configuration x point in tokens per second, with the speed-up against the baseline."""
    tables = [
        _by_configuration(
            points,
            workload,
            partial(_marked, points, workload=workload),
            key="throughput",
            title="output tokens per second",
            note=_mean_note(points, "The second figure is the speed-up against the baseline."),
        )
        for workload in points.section.workloads
    ]
    columns = ["output_tps", "output_tps_low", "output_tps_high", "baseline_tps", "speedup"]
    return Chapter("throughput", "Throughput", tuple(tables), points.long(points.frame, columns))


def latency(points: Points) -> Chapter:
    """Time to first token and time per token, by percentile."""
    tables = [
        _by_point(
            points,
            workload,
            key=f"latency-{workload}",
            title=f"{WORKLOAD_TITLES[workload]}: latency in ms",
            note="",
            columns=LATENCY,
        )
        for workload in points.section.workloads
    ]
    columns = [column for _title, column in LATENCY]
    return Chapter("latency", "Latency", tuple(tables), points.long(points.frame, columns))


def accept_length(points: Points) -> Chapter:
    """Tokens per verify step of speculative decoding, as the engine reports it."""
    tables = [
        _by_configuration(
            points,
            workload,
            partial(points.shown, workload=workload, column="accept_length"),
            key="accept-length",
            title="accept length in tokens per verify step",
            note="An engine that does not speculate, or does not say, gives none.",
        )
        for workload in points.section.workloads
    ]
    columns = ["accept_length", "verify_steps", "draft_tokens", "accepted_drafts"]
    return Chapter("accept-length", "Accept length", tuple(tables), points.long(points.frame, columns))


def context_curve(points: Points) -> Chapter:
    """What a longer prompt costs."""
    columns = (
        ("TTFT p50 ms", "ttft_ms_p50"),
        ("TPOT p50 ms", "tpot_ms_p50"),
        ("tok/s", "output_tps"),
    )
    return _curve(points, "context", "Context curve", columns)


def concurrency_curve(points: Points) -> Chapter:
    """What more clients give in total, and cost each of them."""
    columns = (
        ("total tok/s", "output_tps"),
        ("tok/s per user", "output_tps_per_user"),
        ("TTFT p50 ms", "ttft_ms_p50"),
        ("TPOT p50 ms", "tpot_ms_p50"),
    )
    return _curve(points, "concurrency", "Concurrency curve", columns)


def open_curve(points: Points, workload: Workload) -> Chapter:
    """What requests wait for when they come as they come."""
    columns = (
        ("TTFT p50 ms", "ttft_ms_p50"),
        ("TTFT p99 ms", "ttft_ms_p99"),
        ("TPOT p50 ms", "tpot_ms_p50"),
        ("e2e p50 ms", "e2e_ms_p50"),
        ("tok/s", "output_tps"),
    )
    return _curve(points, workload, WORKLOAD_TITLES[workload], columns)


def agentic(points: Points) -> Chapter:
    """Conversations whose prefix grows: latency of a turn, and how much came from the cache."""
    columns = (
        ("turn p50 ms", "e2e_ms_p50"),
        ("turn p90 ms", "e2e_ms_p90"),
        ("TTFT p50 ms", "ttft_ms_p50"),
        ("tok/s", "output_tps"),
        ("prompt tokens", "prompt_tokens"),
        ("of them cached", "cached_tokens"),
    )
    return _curve(points, "agentic", "Agentic conversations", columns)


def _curve(points: Points, workload: Workload, title: str, columns: tuple[tuple[str, str], ...]) -> Chapter:
    table = _by_point(points, workload, key=f"{workload}-curve", title=title, note="", columns=columns)
    frame = points.of(workload, [*(column for _title, column in columns), "speedup"])
    return Chapter(f"{workload}-curve", title, (table,), frame)


def _by_point(  # noqa: PLR0913 - a table is this much
    points: Points,
    workload: Workload,
    *,
    key: str,
    title: str,
    note: str,
    columns: tuple[tuple[str, str], ...],
) -> Table:
    given = points.frame[points.frame["workload"] == workload].notna().any()
    shown = tuple((name, column) for name, column in columns if given[column])
    missing = [name for name, column in columns if (name, column) not in shown]
    if not shown:
        # Nothing but holes: one column is enough to say why.
        shown = columns[:1]
    elif missing:
        note = f"{note} Given nowhere, so left out: {', '.join(missing)}.".strip()
    return Table(
        key,
        title,
        _mean_note(points, note),
        ("configuration", POINT_WORDS[workload], *(name for name, _column in shown)),
        2,
        tuple(_point_rows(points, workload, shown)),
    )


def _point_rows(
    points: Points, workload: Workload, columns: tuple[tuple[str, str], ...]
) -> Iterator[tuple[Shown, ...]]:
    for node, name in points.row_names():
        for value in points.section.workloads[workload]:
            row = Row(node, name, value)
            figures = [
                points.shown(row, workload, column, with_speedup=column == "output_tps")
                for _, column in columns
            ]
            yield (points.label(node, name), Shown(f"{value:,}", "label"), *_said_once(figures))


def _said_once(figures: list[Shown]) -> list[Shown]:
    """A row without figures gives its reason once; its other places only say what happened."""
    first = figures[0]
    if first.kind != "hole":
        return figures
    return [first, *(replace(shown, text=shown.status) for shown in figures[1:])]


def _marked(points: Points, row: Row, workload: Workload) -> Shown:
    """A throughput, marked when nothing is faster at its point."""
    shown = points.shown(row, workload, "output_tps", with_speedup=True)
    several = len(points.section.configurations) > 1
    if several and shown.kind == "value":
        best = points.best(workload, row.point)
        if points.value(row, workload, "output_tps") >= best:
            return replace(shown, kind="best")
    return shown


def _mean_note(points: Points, note: str) -> str:
    repeats = int(points.frame["planned"].max()) if len(points.frame) else 1
    if repeats <= 1:
        return f"{note} One run each.".strip()
    return f"{note} Means over the repeats that are ok, of percentiles too; n says how many.".strip()
