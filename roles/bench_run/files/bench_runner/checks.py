"""From what was measured to a status: a cell is ok, and has numbers, only when each of these holds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from bench_runner.client.verdict import DEVIATIONS
from bench_runner.journal import Reason
from bench_runner.metrics import in_one_piece, run_together
from bench_runner.records import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_runner.client.stream import Stream
    from bench_runner.load import Outcome
    from bench_runner.server.identity import Identity


# A slewing clock (chrony, ntpd) moves at most 0.5 ms a second; a step is larger than any cell's slew.
MAX_CLOCK_STEP_S = 0.5


class Verdict(Struct, frozen=True, kw_only=True):
    status: str
    reasons: list[Reason]
    checks: list[Check]


class Observed(Struct, frozen=True, kw_only=True):
    """What was seen around the load. `after` is None where no server runs any more."""

    before: Identity
    after: Identity | None
    clock_step_s: float


def verdict(outcomes: Sequence[Outcome], observed: Observed, *, planned: int, tolerance: int) -> Verdict:
    failed = [outcome for outcome in outcomes if outcome.fault]
    reasons: list[Reason] = []
    checks: list[Check] = []

    def check(name: str, passed: bool, detail: str, code: str) -> None:  # noqa: FBT001 - a check's outcome is its subject
        checks.append(Check(name=name, passed=passed, detail=detail))
        if not passed:
            reasons.append(Reason(code, detail))

    accounted = len(outcomes) == planned
    check(
        "conservation",
        accounted,
        f"{planned} planned = {len(outcomes) - len(failed)} ok + {len(failed)} failed",
        "requests_lost",
    )
    within = len(failed) <= tolerance
    checks.append(
        Check(
            name="failed_requests", passed=within, detail=f"{len(failed)} failed, tolerated are {tolerance}"
        )
    )
    if not within:
        reasons.extend(_by_code(failed, planned))
    same = observed.before == observed.after
    check(
        "server_identity",
        same,
        "the same server process before and after"
        if same
        else f"before {observed.before}, after {observed.after}",
        "server_replaced",
    )
    steady = abs(observed.clock_step_s) < MAX_CLOCK_STEP_S
    check(
        "clock",
        steady,
        f"wall clock against monotonic clock: {observed.clock_step_s * 1e3:+.1f} ms",
        "clock_stepped",
    )
    checks.append(_arrivals([outcome.stream for outcome in outcomes if outcome.stream and not outcome.fault]))
    usable = any(not outcome.fault or outcome.fault.code in DEVIATIONS for outcome in outcomes)
    status = "ok" if not reasons else ("partial" if usable else "failed")
    return Verdict(status=status, reasons=reasons, checks=checks)


def _arrivals(streams: Sequence[Stream]) -> Check:
    """What the stamps are good for; metrics that they aren't good for are not given."""
    together, chunks = run_together(streams)
    whole = sum(1 for stream in streams if in_one_piece(stream))
    detail = f"{together} of {chunks} chunks shared a read, {whole} of {len(streams)} answers came in one"
    return Check(name="arrivals", passed=True, detail=detail)


def _by_code(failed: Sequence[Outcome], planned: int) -> list[Reason]:
    """One reason a kind, with how many and the first one's words."""
    counted = Counter(outcome.fault.code for outcome in failed if outcome.fault)
    first = {outcome.fault.code: outcome.fault.detail for outcome in reversed(failed) if outcome.fault}
    return [
        Reason(code, f"{number} of {planned} requests: {first[code]}")
        for code, number in counted.most_common()
    ]
