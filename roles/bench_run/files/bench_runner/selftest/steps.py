"""One step of the self-test: a load against the exact server, and how far its figures are from the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from bench_runner.arrivals import Pattern, schedule
from bench_runner.cells import Traffic
from bench_runner.certificate import FLOOR_MS, doubts
from bench_runner.certificate import RELATIVE as CERTIFIED
from bench_runner.errors import BenchError
from bench_runner.load import Load, Script
from bench_runner.metrics import percentile, run_together
from bench_runner.open_load import OpenLoad
from bench_runner.plan import Limits
from bench_runner.selftest.rig import Rig, Shape, Truth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_runner.client.stream import Stream
    from bench_runner.client.watch import ClientHealth
    from bench_runner.load import Outcome, Sending

_MS = 1e6
# Within these the figures hold.
TTFT_P50_MS = 0.3
TTFT_P99_MS = 1.5
LATE_P99_MS = 0.1
TOGETHER = 0.05
RELATIVE = 0.01
SEND_LATE_P99_MS = 2.0


class Step(Struct, frozen=True, kw_only=True):
    """What is run: `streams` at once, or `rate` requests a second whatever happens."""

    streams: int
    gap_us: int
    ttft_us: int = 50_000
    chunks: int = 100
    requests: int = 0  # 0: one a stream
    rate: float | None = None
    pattern: Pattern = "poisson"
    tokens_per_chunk: int = 1


class Found(Struct, frozen=True, kw_only=True):
    """Errors are the client's figure minus the truth."""

    step: Step
    chunks_per_s: float
    requests: int
    faults: int
    ttft_error_p50_ms: float
    ttft_error_p99_ms: float
    stamp_late_p50_ms: float
    stamp_late_p99_ms: float
    together_share: float
    tpot_error: float  # of the median, relative
    tps_error: float  # of the tokens a second, relative
    server_late_p99_ms: float  # behind its own schedule: where it is large, it is the limit
    truth_blur_ms: float  # by how much the server's own record may be wrong
    wall_s: float
    health: ClientHealth
    sending: Sending
    gap_cv: float | None  # of the times between requests as the server saw them: 1 for Poisson
    seen_rps: float | None
    doubts: list[str]  # the metrics that the client itself doubts
    gap_error: float  # of the median, relative

    @property
    def ttft_holds(self) -> bool:
        return (
            not self.faults
            and abs(self.ttft_error_p50_ms) <= TTFT_P50_MS
            and abs(self.ttft_error_p99_ms) <= TTFT_P99_MS
        )

    @property
    def gaps_hold(self) -> bool:
        return not self.faults and self.stamp_late_p99_ms <= LATE_P99_MS and self.together_share <= TOGETHER

    @property
    def speed_holds(self) -> bool:
        return not self.faults and abs(self.tpot_error) <= RELATIVE and abs(self.tps_error) <= RELATIVE

    @property
    def wrongly_certified(self) -> list[str]:
        """What the client would have let pass, and shouldn't have."""
        ttft_ms, span_ms = self.step.ttft_us / 1000, self.step.gap_us * self.step.chunks / 1000
        blur_ms = self.truth_blur_ms
        wrong = {
            "ttft_ms": abs(self.ttft_error_p50_ms) > max(FLOOR_MS, ttft_ms * CERTIFIED) + blur_ms,
            "tpot_ms": abs(self.tpot_error) > CERTIFIED + blur_ms / span_ms,
            "chunk_gap_ms": abs(self.gap_error) > TOGETHER,
            "output_tps": abs(self.tps_error) > CERTIFIED + blur_ms / (self.wall_s * 1000),
        }
        return [metric for metric, is_wrong in wrong.items() if is_wrong and metric not in self.doubts]

    @property
    def sends_hold(self) -> bool:
        """Of an open loop; a closed one has no times to keep."""
        late, target, achieved = self.sending.late, self.sending.target_rps, self.sending.achieved_rps
        if late is None or target is None or achieved is None:
            return True
        return late.p99_ms <= SEND_LATE_P99_MS and abs(achieved / target - 1) <= RELATIVE


async def measure(rig: Rig, step: Step) -> Found:
    """Run it once, and compare."""
    load = make_load(rig, step)
    return judge(rig, step, load, await load.run())


def make_load(rig: Rig, step: Step) -> Load:
    requests = step.requests or step.streams
    traffic = Traffic(
        clients=step.streams,
        conversations=requests,
        turns=1,
        first_prompt_tokens=1,
        turn_tokens=0,
        output_tokens=step.chunks * step.tokens_per_chunk,
    )
    rig.engine.shape = Shape(ttft_us=step.ttft_us, gap_us=step.gap_us, tokens_per_chunk=step.tokens_per_chunk)
    scripts = [Script(first=str(number), turns=[]) for number in range(requests)]
    limits = Limits(cell_s=120, stall_s=20)
    if step.rate is None:
        return Load(traffic, scripts, rig, limits)
    due_ns = schedule(step.pattern, rate=step.rate, requests=requests, seed="selftest")
    return OpenLoad(traffic, scripts, rig, limits, due_ns=due_ns)


def judge(rig: Rig, step: Step, load: Load, outcomes: Sequence[Outcome]) -> Found:
    """A load that has run, against the server's truth."""
    streams = {outcome.index: outcome.stream for outcome in outcomes if outcome.stream and not outcome.fault}
    if load.health is None or not streams:
        raise BenchError(f"self-test: no answer was whole; the first: {outcomes[0].fault}")
    return compare(step, streams, rig.truth(), health=load.health, sending=load.sending())


def compare(
    step: Step,
    streams: dict[int, Stream],
    truths: dict[int, Truth],
    *,
    health: ClientHealth,
    sending: Sending,
) -> Found:
    pairs = [(stream, truths[number]) for number, stream in streams.items()]
    ttft = [(_ttft(stream) - (truth.sent_ns[0] - truth.came_ns)) / _MS for stream, truth in pairs]
    late = [
        (seen - sent) / _MS for stream, truth in pairs for seen, sent in zip(stream.chunks_ns, truth.sent_ns)
    ]
    shared, chunks = run_together([stream for stream, _ in pairs])
    spans = sorted(
        (stream.chunks_ns[-1] - stream.chunks_ns[0]) / (truth.sent_ns[-1] - truth.sent_ns[0])
        for stream, truth in pairs
    )
    seen_s = (max(s.chunks_ns[-1] for s, _ in pairs) - min(s.sent_ns for s, _ in pairs)) / 1e9
    true_s = (max(t.sent_ns[-1] for _, t in pairs) - min(t.came_ns for _, t in pairs)) / 1e9
    came = sorted(truth.came_ns for _, truth in pairs)
    return Found(
        step=step,
        chunks_per_s=chunks / true_s,
        requests=len(pairs),
        faults=(step.requests or step.streams) - len(pairs),
        ttft_error_p50_ms=_at(ttft, 50),
        ttft_error_p99_ms=_at(ttft, 99),
        stamp_late_p50_ms=_at(late, 50),
        stamp_late_p99_ms=_at(late, 99),
        together_share=shared / chunks,
        tpot_error=spans[len(spans) // 2] - 1,
        tps_error=true_s / seen_s - 1,
        server_late_p99_ms=_at([truth.late_ns / _MS for _, truth in pairs], 99),
        truth_blur_ms=max(truth.slow_ns for _, truth in pairs) / _MS,
        wall_s=true_s,
        health=health,
        sending=sending,
        doubts=sorted(doubts([stream for stream, _ in pairs], health, sending)),
        gap_error=_gap([s.chunks_ns for s, _ in pairs]) / _gap([t.sent_ns for _, t in pairs]) - 1,
        gap_cv=_variation(came) if step.rate else None,
        seen_rps=(len(came) - 1) * 1e9 / (came[-1] - came[0]) if step.rate else None,
    )


def _ttft(stream: Stream) -> int:
    return stream.chunks_ns[0] - stream.sent_ns


def _gap(arrivals: Sequence[Sequence[int]]) -> float:
    return _at([b - a for times in arrivals for a, b in zip(times, times[1:])], 50)


def _at(values: Sequence[float], percent: int) -> float:
    return percentile(sorted(values), percent)


def _variation(times: Sequence[int]) -> float | None:
    """Standard deviation by mean of the gaps."""
    gaps = [after - before for before, after in zip(times, times[1:])]
    mean = sum(gaps) / len(gaps) if gaps else 0
    if not mean:
        return None
    return float((sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean)
