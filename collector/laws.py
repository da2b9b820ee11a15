"""What must hold in any honest cell, beyond the shape that the schema gives."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collector.records import Cell, Distribution, Metrics

# No engine on one node gives more; a larger number is a division by almost nothing.
MAX_OUTPUT_TPS = 1_000_000.0
MAX_USER_TPS = 100_000.0
# The writer may round its figures; more than this apart is another measurement.
TOLERANCE = 0.02
POINT_UNITS = {
    "code": "output_tokens",
    "context": "prompt_tokens",
    "concurrency": "clients",
    "rate": "requests_per_s",
    "replay": "speed_percent",
    "agentic": "turns",
}
DISTRIBUTIONS = ("ttft_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms")


def broken_laws(cell: Cell) -> list[str]:
    """Name each law that the cell breaks; an empty list means it can be believed."""
    laws = [_naming(cell), _counting(cell)]
    if cell.metrics is not None:
        laws += [_timing(cell, cell.metrics), _conserving(cell, cell.metrics)]
    return [broken for law in laws for broken in law]


def _naming(cell: Cell) -> Iterator[str]:
    expected = f"{cell.configuration}.{cell.workload}.{cell.point}.r{cell.repeat}"
    if cell.cell != expected:
        yield f"the cell is called {cell.cell}, its parts say {expected}"
    if cell.point_unit != POINT_UNITS[cell.workload]:
        yield f"a {cell.workload} point is in {POINT_UNITS[cell.workload]}, not in {cell.point_unit}"
    hashed = {"identity": cell.fingerprint.identity, "workload": cell.workload}
    canonical = msgspec.json.encode({**hashed, "point": cell.point, "repeat": cell.repeat}, order="sorted")
    if hashlib.sha256(canonical).hexdigest() != cell.content_hash:
        yield "its content_hash is not that of its identity, workload, point and repeat"
    for role, companion in cell.files.items():
        if "/" in companion.name or not companion.name.startswith(f"{cell.cell}."):
            yield f"its {role} file is called {companion.name!r}, which does not begin with the cell's name"


def _counting(cell: Cell) -> Iterator[str]:
    if (cell.metrics is not None) != (cell.status == "ok"):
        yield f"status {cell.status} {'with' if cell.metrics else 'without'} metrics"
    if bool(cell.reasons) == (cell.status == "ok"):
        yield f"status {cell.status} {'with' if cell.reasons else 'without'} a reason"
    if cell.status != "ok":
        return
    requests = cell.requests
    if requests.ok + requests.failed != requests.planned:
        yield f"{requests.planned} requests planned, but {requests.ok} ok and {requests.failed} failed"
    if requests.ok == 0:
        yield "status ok without one good request"
    for check in cell.checks:
        if not check.passed:
            yield f"status ok although the check {check.name} failed ({check.detail})"
    if cell.ended_at < cell.started_at:
        yield f"it ended ({cell.ended_at}) before it started ({cell.started_at}): the clock stepped back"


def _timing(cell: Cell, metrics: Metrics) -> Iterator[str]:
    for name in DISTRIBUTIONS:
        distribution: Distribution | None = getattr(metrics, name)
        if distribution is not None:
            yield from (f"{name}: {problem}" for problem in _ordering(distribution))
    for name in ("ttft_ms", "e2e_ms"):
        distribution = getattr(metrics, name)
        if distribution is not None and distribution.n > cell.requests.ok:
            yield f"{name} has {distribution.n} values of {cell.requests.ok} good requests"
    if metrics.ttft_ms and metrics.e2e_ms and _above(metrics.ttft_ms.max, metrics.e2e_ms.max):
        yield "the longest time to first token is longer than the longest request"
    if metrics.e2e_ms and _above(metrics.e2e_ms.max, metrics.wall_s * 1000):
        yield f"a request took {metrics.e2e_ms.max:.0f} ms of {metrics.wall_s:.3f} s in all"


def _conserving(cell: Cell, metrics: Metrics) -> Iterator[str]:
    if metrics.output_tps > MAX_OUTPUT_TPS or metrics.output_tps_per_user > MAX_USER_TPS:
        yield f"{max(metrics.output_tps, metrics.output_tps_per_user):.4g} tok/s is not possible"
    expected = metrics.completion_tokens / metrics.wall_s
    if not math.isclose(expected, metrics.output_tps, rel_tol=TOLERANCE):
        yield (
            f"{metrics.completion_tokens} tokens in {metrics.wall_s:.3f} s are {expected:.4g} tok/s, "
            f"the file says {metrics.output_tps:.4g}"
        )
    if metrics.completion_tokens < cell.requests.ok:
        yield f"{metrics.completion_tokens} tokens from {cell.requests.ok} good requests"
    drafts, accepted = metrics.draft_tokens, metrics.accepted_drafts
    if drafts is not None and accepted is not None and accepted > drafts:
        yield f"{accepted} drafts accepted of {drafts}"
    if metrics.accept_length is not None and metrics.verify_steps:
        expected = metrics.completion_tokens / metrics.verify_steps
        if not math.isclose(expected, metrics.accept_length, rel_tol=TOLERANCE):
            yield f"an accept length of {metrics.accept_length:g}, but its tokens by step are {expected:.3f}"


def _ordering(distribution: Distribution) -> Iterator[str]:
    if distribution.min < 0:
        yield f"a negative time ({distribution.min:g}): the clock stepped back"
    steps = [distribution.min, distribution.p50, distribution.p90, distribution.p99, distribution.max]
    known = [step for step in steps if step is not None]
    if any(_above(low, high) for low, high in zip(known, known[1:], strict=False)):
        yield "min, percentiles and max are not in order"
    if _above(distribution.min, distribution.mean) or _above(distribution.mean, distribution.max):
        yield f"the mean ({distribution.mean:g}) is outside of min and max"


def _above(low: float, high: float) -> bool:
    """Whether ``low`` is above ``high`` by more than rounding."""
    return low > high and not math.isclose(low, high, rel_tol=1e-3, abs_tol=1e-3)
