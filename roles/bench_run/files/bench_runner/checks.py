"""From what was measured to a status: a cell is ok, and has numbers, only when each of these holds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bench_runner.certificate import HEADLINE, doubts
from bench_runner.client.verdict import DEVIATIONS
from bench_runner.journal import Reason
from bench_runner.metrics import in_one_piece, run_together
from bench_runner.records import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_runner.certificate import Doubt
    from bench_runner.client.stream import Stream
    from bench_runner.client.watch import ClientHealth
    from bench_runner.load import Outcome, Sending
    from bench_runner.plan import Tolerance
    from bench_runner.server.identity import Identity


# A slewing clock (chrony, ntpd) moves at most 0.5 ms a second; a step is larger than any cell's slew.
MAX_CLOCK_STEP_MS = 500.0


class Verdict(Struct, frozen=True, kw_only=True):
    status: str
    reasons: list[Reason]
    checks: list[Check]
    doubted: list[str]  # metrics that the client itself spoilt
    client: dict[str, Any] | None


class Observed(Struct, frozen=True, kw_only=True):
    """What was seen around the load. `after` is None where no server runs any more."""

    before: Identity
    after: Identity | None
    health: ClientHealth | None  # None where no load ran
    sending: Sending


def verdict(
    outcomes: Sequence[Outcome], observed: Observed, *, planned: int, tolerance: Tolerance
) -> Verdict:
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
    # However many may fail: with none that went well nothing was measured.
    within = len(failed) <= min(tolerance.failed_requests, len(outcomes) - 1)
    tolerated = f"{len(failed)} failed, tolerated are {tolerance.failed_requests}"
    checks.append(Check(name="failed_requests", passed=within, detail=tolerated))
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
    drift_ms = observed.health.clock_drift_ms if observed.health else 0.0
    steady = abs(drift_ms) < MAX_CLOCK_STEP_MS
    check("clock", steady, f"wall clock against monotonic clock: {drift_ms:+.1f} ms", "clock_stepped")
    streams = [outcome.stream for outcome in outcomes if outcome.stream and not outcome.fault]
    checks.append(_arrivals(streams))
    found: dict[str, Doubt] = {}
    if observed.health:
        found = doubts(streams, observed.health, observed.sending, floor_ms=tolerance.client_ms)
    grave = [found[metric] for metric in HEADLINE if metric in found]
    checks.append(Check(name="client", passed=not grave, detail=_in_words(found)))
    if not reasons:  # else what the server did is the matter
        reasons.extend(Reason(doubt.code, doubt.detail) for doubt in grave[:1])
    usable = any(not outcome.fault or outcome.fault.code in DEVIATIONS for outcome in outcomes)
    status = "ok" if not reasons else ("partial" if usable else "failed")
    return Verdict(
        status=status,
        reasons=reasons,
        checks=checks,
        doubted=sorted(found),
        client=_client(observed, found),
    )


def _arrivals(streams: Sequence[Stream]) -> Check:
    """What the stamps are good for; metrics that they aren't good for are not given."""
    together, chunks = run_together(streams)
    whole = sum(1 for stream in streams if in_one_piece(stream))
    detail = f"{together} of {chunks} chunks shared a read, {whole} of {len(streams)} answers came in one"
    return Check(name="arrivals", passed=True, detail=detail)


def _in_words(found: dict[str, Doubt]) -> str:
    """What is doubted, and why."""
    if not found:
        return "the client was good enough for each metric"
    why = dict.fromkeys(doubt.detail for doubt in found.values())
    return f"not certified: {', '.join(found)}: {'; '.join(why)}"


def _client(observed: Observed, found: dict[str, Doubt]) -> dict[str, Any] | None:
    if observed.health is None:
        return None
    return {
        "health": msgspec.to_builtins(observed.health),
        "sending": msgspec.to_builtins(observed.sending),
        "doubts": {metric: doubt.detail for metric, doubt in found.items()},
    }


def _by_code(failed: Sequence[Outcome], planned: int) -> list[Reason]:
    """One reason a kind, with how many and the first one's words."""
    counted = Counter(outcome.fault.code for outcome in failed if outcome.fault)
    first = {outcome.fault.code: outcome.fault.detail for outcome in reversed(failed) if outcome.fault}
    return [
        Reason(code, f"{number} of {planned} requests: {first[code]}")
        for code, number in counted.most_common()
    ]
