"""The measured figures of a cell as flat columns, units in their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.records import Distribution, Metrics

DISTRIBUTIONS = ("ttft_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms")
STATISTICS = ("n", "mean", "min", "max", "p50", "p90", "p99")
SCALARS = (
    "output_tps",
    "output_tps_per_user",
    "prompt_tokens",
    "completion_tokens",
    "wall_s",
    "accept_length",
    "verify_steps",
    "draft_tokens",
    "accepted_drafts",
    "cached_tokens",
)
METRIC_COLUMNS = (*SCALARS, *(f"{name}_{statistic}" for name in DISTRIBUTIONS for statistic in STATISTICS))


def flat_metrics(metrics: Metrics | None) -> dict[str, float | None]:
    """Every metric column; None where it was not measured or not given."""
    if metrics is None:
        return dict.fromkeys(METRIC_COLUMNS)
    flat: dict[str, float | None] = {name: getattr(metrics, name) for name in SCALARS}
    for name in DISTRIBUTIONS:
        distribution: Distribution | None = getattr(metrics, name)
        for statistic in STATISTICS:
            flat[f"{name}_{statistic}"] = None if distribution is None else getattr(distribution, statistic)
    return flat
