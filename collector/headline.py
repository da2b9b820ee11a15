"""Who won each workload, and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pandas as pd

from collector.formats import WORKLOAD_TITLES, figure, one_line, point_title, speedup
from collector.table import Chapter, Shown, Table

if TYPE_CHECKING:
    from collector.records import Workload
    from collector.tables import Points


@dataclass(frozen=True)
class Headline:
    """The fastest configuration of a workload on one node.

    ``speedup`` is the geometric mean over the points that both it and the baseline have; the winner has
    the most points of all, and among equals the highest mean.
    """

    workload: Workload
    node: str
    configuration: str
    is_baseline: bool
    speedup: float | None
    points_ok: int
    points_planned: int
    top_tps: float
    top_point: int
    top_file: str
    runs: int
    faster_where_ran: str
    """Another configuration that is faster on the fewer points it has, in words."""

    @property
    def title(self) -> str:
        return WORKLOAD_TITLES[self.workload]

    @property
    def verdict(self) -> str:
        if self.is_baseline:
            return "the baseline is the fastest"
        if self.speedup is None:
            return "no baseline to compare with"
        return f"{speedup(self.speedup)} the baseline"

    @property
    def basis(self) -> str:
        """On how much this rests."""
        runs = "one run a point" if self.runs == 1 else f"up to {self.runs} runs a point"
        return f"{self.points_ok} of {self.points_planned} points, {runs}"

    @property
    def top(self) -> str:
        return f"{figure(self.top_tps)} tok/s at {point_title(self.workload, self.top_point)}"


def headlines(points: Points) -> tuple[Headline, ...]:
    """A headline for each workload and node that has any good cell."""
    found = [
        _headline(points, workload, node)
        for workload in points.section.workloads
        for node in points.section.nodes
    ]
    return tuple(headline for headline in found if headline is not None)


def headline_chapter(points: Points) -> Chapter:
    lines = headlines(points)
    rows = tuple(
        (
            Shown(f"{line.title} @ {line.node}" if len(points.section.nodes) > 1 else line.title, "label"),
            Shown(line.configuration, "best", file=line.top_file),
            Shown(line.verdict),
            Shown(line.top),
            Shown(f"{line.basis}; {line.faster_where_ran}" if line.faster_where_ran else line.basis, "note"),
        )
        for line in lines
    )
    note = "Fastest is the configuration with the most points, then the highest mean speed-up over them."
    table = Table("summary", "Fastest by workload", note, _COLUMNS, 1, rows)
    frame = pd.DataFrame(
        [
            {
                "workload": line.workload,
                "node": line.node,
                "configuration": line.configuration,
                "speedup": line.speedup,
                "points_ok": line.points_ok,
                "points_planned": line.points_planned,
                "top_tps": line.top_tps,
                "top_point": line.top_point,
            }
            for line in lines
        ]
    )
    environment = points.section.environment.name if points.section.environment else ""
    return Chapter(
        "summary",
        "Summary",
        (table,),
        frame.assign(campaign=points.section.campaign, environment=environment),
    )


_COLUMNS = ("workload", "fastest", "against the baseline", "highest throughput", "rests on")


def _headline(points: Points, workload: Workload, node: str) -> Headline | None:
    frame = points.frame
    here = frame[(frame["workload"] == workload) & (frame["node"] == node)]
    good = here[here["n"] > 0]
    if good.empty:
        return None
    ranked = good.assign(log_speedup=good["speedup"].map(math.log, na_action="ignore"))
    scores = ranked.groupby("configuration", sort=False).agg(
        points_ok=("n", "size"), mean_log=("log_speedup", "mean"), mean_tps=("output_tps", "mean")
    )
    by = ["points_ok", "mean_log", "mean_tps"]
    ranking = scores.sort_values(by, ascending=False, na_position="last", kind="stable").reset_index()
    best = ranking.iloc[0]
    name = str(best["configuration"])
    winner = good[good["configuration"] == name]
    top = winner.sort_values("output_tps", ascending=False, kind="stable").iloc[0]
    is_baseline = name in points.section.baselines
    mean_log = cast("float", best["mean_log"])
    points_planned = int(here["point"].nunique())
    return Headline(
        workload=workload,
        node=node,
        configuration=one_line(name),
        is_baseline=is_baseline,
        speedup=None if pd.isna(mean_log) else math.exp(mean_log),
        points_ok=int(best["points_ok"]),
        points_planned=points_planned,
        top_tps=float(top["output_tps"]),
        top_point=int(top["point"]),
        top_file=str(top["file"]),
        runs=int(winner["n"].max()),
        faster_where_ran=_faster_where_ran(ranking, points_planned),
    )


def _faster_where_ran(ranking: pd.DataFrame, planned: int) -> str:
    """Say so when the winner owes its place to the crashes of a faster one."""
    faster = ranking[ranking["mean_log"] > ranking["mean_log"].iloc[0]]
    if faster.empty:
        return ""
    first = faster.sort_values("mean_log", ascending=False, kind="stable").iloc[0]
    ratio = speedup(math.exp(cast("float", first["mean_log"])))
    return f"{one_line(str(first['configuration']))} has {ratio} on {int(first['points_ok'])} of {planned}"
