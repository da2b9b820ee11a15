"""Whether the client was good enough for what it measured, metric by metric: METRICS.md has the rules.

A doubt is about this client, never about the server: a metric with a doubt isn't given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from bench_runner.metrics import MAX_TOGETHER, percentile, run_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_runner.client.stream import Stream
    from bench_runner.client.watch import ClientHealth
    from bench_runner.load import Sending

# Without these a cell says nothing.
HEADLINE = ("ttft_ms", "tpot_ms", "output_tps")
TIMES = ("ttft_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms")
METRICS = (*TIMES, "output_tps", "output_tps_per_user")

# The client may be wrong by this share of what it measures, or by this much where that is little.
RELATIVE = 0.02
FLOOR_MS = 2.0
# Of the answers' first chunks, that came in one read with the next.
MAX_FIRST_TOGETHER = 0.01
MAX_UNSTAMPED = 0.001
MAX_STEAL = 0.10
MAX_RATE_ERROR = 0.01
# Of an open loop's requests, that were sent later than LATE_MS after they were due.
MAX_LATE = 0.05


class Doubt(Struct, frozen=True):
    code: str
    detail: str


def doubts(
    streams: Sequence[Stream], health: ClientHealth, sending: Sending, *, floor_ms: float = FLOOR_MS
) -> dict[str, Doubt]:
    """By metric, the gravest first; a metric without one is certified. `streams` are of the ok requests."""
    if not streams:
        return {}
    found: dict[str, Doubt] = {}

    def add(metrics: Sequence[str], code: str, detail: str) -> None:
        for metric in metrics:
            found.setdefault(metric, Doubt(code, detail))

    stamped = health.stamps != "read_monotonic"
    if stamped and health.clock_steps_ms:
        worst = max(health.clock_steps_ms, key=abs)
        add(
            METRICS,
            "clock_stepped",
            f"the wall clock, which arrivals are stamped by, stepped {worst:+.1f} ms",
        )
    if stamped and health.unstamped_reads > health.reads * MAX_UNSTAMPED:
        detail = f"{health.unstamped_reads} of {health.reads} reads had no stamp of the kernel's"
        add(TIMES, "client_limited", detail)
    lag_ms = health.loop_lag.p99_ms if health.loop_lag else 0.0
    if health.steal_share is not None and health.steal_share > MAX_STEAL and lag_ms > floor_ms:
        add(
            METRICS,
            "client_limited",
            f"{health.steal_share:.0%} of this machine's time was taken by its host",
        )
    for metric, detail in _late(streams, lag_ms, floor_ms, stamped=stamped):
        add([metric], "client_limited", detail)
    for detail in _sent_otherwise(streams, sending, floor_ms):
        add(METRICS, "client_limited", detail)
    return found


def _late(
    streams: Sequence[Stream], lag_ms: float, floor_ms: float, *, stamped: bool
) -> list[tuple[str, str]]:
    """What the client's lateness spoils: a stamp of the kernel's only where chunks share a read."""
    together, chunks = run_together(streams)
    first_together = sum(1 for stream in streams if len(stream.chunks_ns) > 1 and _first_shares(stream))
    late = f"the client was up to {lag_ms:.1f} ms late (p99)"
    found = []
    if not stamped or first_together > len(streams) * MAX_FIRST_TOGETHER:
        how = (
            f"{late}, {first_together} of {len(streams)} first chunks came with the next" if stamped else late
        )
        for metric, typical_ms in (("ttft_ms", _ttft_ms(streams)), ("tpot_ms", _span_ms(streams))):
            if lag_ms > max(floor_ms, typical_ms * RELATIVE):
                found.append((metric, f"{how}; it measures {typical_ms:.1f} ms"))
    if together > chunks * MAX_TOGETHER:
        found.append(("chunk_gap_ms", f"{together} of {chunks} chunks came in one read with the one before"))
    if stamped:
        return found
    e2e_ms = _ttft_ms(streams) + _span_ms(streams)
    if lag_ms > max(floor_ms, e2e_ms * RELATIVE):
        found += [(metric, late) for metric in ("e2e_ms", "output_tps", "output_tps_per_user")]
    gap_ms = _span_ms(streams) * len(streams) / max(chunks - len(streams), 1)
    if lag_ms > gap_ms * MAX_TOGETHER:
        found.append(("chunk_gap_ms", f"{late}, a gap is {gap_ms:.2f} ms"))
    return found


def _sent_otherwise(streams: Sequence[Stream], sending: Sending, floor_ms: float) -> list[str]:
    """The load wasn't the one that was planned."""
    found = []
    share, turnaround = sending.turnaround_share, sending.turnaround
    if share is not None and turnaround and share > RELATIVE and turnaround.p50_ms > floor_ms:
        found.append(
            f"clients took {turnaround.p50_ms:.1f} ms to send again, {share:.1%} of the requests' time"
        )
    late, late_share = sending.late, sending.late_share or 0.0
    if late and late_share > MAX_LATE and late.p99_ms > max(floor_ms, _ttft_ms(streams) * RELATIVE):
        found.append(f"{late_share:.0%} of the requests were sent late, up to {late.p99_ms:.1f} ms (p99)")
    if sending.target_rps and sending.achieved_rps:
        error = sending.achieved_rps / sending.target_rps - 1
        if abs(error) > MAX_RATE_ERROR:
            found.append(
                f"{sending.achieved_rps:.2f} of {sending.target_rps:.2f} requests a second were sent"
            )
    return found


def _first_shares(stream: Stream) -> bool:
    """An answer that came whole in one read may be the server's doing, and has no span anyway."""
    return stream.chunks_ns[0] == stream.chunks_ns[1] != stream.chunks_ns[-1]


def _ttft_ms(streams: Sequence[Stream]) -> float:
    return percentile(sorted((s.chunks_ns[0] - s.sent_ns) / 1e6 for s in streams), 50)


def _span_ms(streams: Sequence[Stream]) -> float:
    return percentile(sorted((s.chunks_ns[-1] - s.chunks_ns[0]) / 1e6 for s in streams), 50)
