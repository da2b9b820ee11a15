"""Sections as data frames: one row a slot, then one row a point with its repeats brought together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from collector.columns import METRIC_COLUMNS, flat_metrics

if TYPE_CHECKING:
    from collector.sections import Section

POINT = ["node", "configuration", "workload", "point"]
SLOT_COLUMNS = [*POINT, "repeat", "status", "hole", "detail", "file", *METRIC_COLUMNS]


def slots_frame(section: Section) -> pd.DataFrame:
    """One row a slot. Metrics are there only in ok rows, so no mean can take in anything else."""
    rows = [
        {
            "node": coverage.campaign.node,
            "configuration": slot.planned.configuration,
            "workload": slot.planned.workload,
            "point": slot.planned.point,
            "repeat": slot.planned.repeat,
            "status": slot.status,
            "hole": "" if slot.status == "ok" else slot.hole,
            "detail": slot.detail,
            "file": str(slot.file.path) if slot.file else "",
            **flat_metrics(slot.row.cell.metrics if slot.row else None),
        }
        for coverage in section.coverages
        for slot in coverage.slots
    ]
    frame = pd.DataFrame(rows, columns=SLOT_COLUMNS)
    return frame.astype(dict.fromkeys(METRIC_COLUMNS, "float64"))


def points_frame(section: Section) -> pd.DataFrame:
    """One row a point: means over the repeats that are ok, how many those are, the first hole if any."""
    slots = slots_frame(section)
    slots["ok"] = slots["status"] == "ok"
    # An ok slot first, so that the file and the hole of a point are those of its lowest such repeat.
    by_point = slots.groupby(POINT, sort=False)
    points = by_point[list(METRIC_COLUMNS)].mean()
    points["output_tps_low"] = by_point["output_tps"].min()
    points["output_tps_high"] = by_point["output_tps"].max()
    points["n"] = by_point["ok"].sum()
    points["planned"] = by_point.size()
    points["file"] = slots.sort_values("ok", ascending=False, kind="stable").groupby(POINT)["file"].first()
    holes = slots[~slots["ok"]].groupby(POINT)
    points["hole"] = holes["hole"].first()
    points["detail"] = holes["detail"].first()
    points["status"] = holes["status"].first()
    points = points.reset_index().fillna({"hole": "", "detail": "", "status": "ok"})
    points.loc[points["n"] > 0, "status"] = "ok"
    return _with_speedup(points, section.baselines)


def _with_speedup(points: pd.DataFrame, baselines: frozenset[str]) -> pd.DataFrame:
    """Throughput against the baseline of the same node, workload and point; NaN where it has none."""
    key = ["node", "workload", "point"]
    baseline = (
        points[points["configuration"].isin(baselines)]
        .groupby(key)["output_tps"]
        .mean()
        .rename("baseline_tps")
        .reset_index()
    )
    together = points.merge(baseline, on=key, how="left")
    together["speedup"] = together["output_tps"] / together["baseline_tps"]
    return together
