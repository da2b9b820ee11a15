"""The client says when it isn't to be trusted, and for which of its figures."""

from __future__ import annotations

import msgspec
import pytest
import uvloop
from bench_runner.certificate import METRICS, TIMES, doubts
from bench_runner.client.lags import LagSummary
from bench_runner.client.stream import Stream, Usage
from bench_runner.client.watch import ClientHealth
from bench_runner.load import Sending
from bench_runner.selftest.report import encode, selftest, table
from bench_runner.selftest.steps import Step

MS = 1_000_000


def lag(p99_ms: float, p50_ms: float = 0.05) -> LagSummary:
    return LagSummary(n=100, p50_ms=p50_ms, p99_ms=p99_ms, max_ms=p99_ms)


GOOD = ClientHealth(
    stamps="kernel_realtime",
    wall_s=10,
    reads=1000,
    unstamped_reads=0,
    read_lag=lag(0.1),
    loop_lag=lag(0.1),
    cpu_share=0.3,
    waited_share=0.0,
    steal_share=0.0,
    clock_steps_ms=[],
    clock_drift_ms=0.0,
)


def stream(*chunks_ms: float) -> Stream:
    times = [int(at * MS) for at in chunks_ms]
    return Stream(sent_ns=0, end_ns=times[-1], chunks_ns=times, usage=Usage(1, len(times)))


APART = [stream(50, 60, 70, 80, 90) for _ in range(20)]
FIRST_TOGETHER = [stream(60, 60, 70, 80, 90), *APART[1:]]
TOGETHER = [stream(50, 60, 80, 80, 90) for _ in range(20)]


@pytest.mark.parametrize(
    ("streams", "health", "sending", "doubted"),
    [
        (APART, {}, Sending(), set()),
        (APART, {"loop_lag": lag(30)}, Sending(), set()),
        (FIRST_TOGETHER, {}, Sending(), set()),
        (FIRST_TOGETHER, {"loop_lag": lag(30)}, Sending(), {"ttft_ms", "tpot_ms"}),
        (TOGETHER, {}, Sending(), {"chunk_gap_ms"}),
        (APART, {"unstamped_reads": 5}, Sending(), set(TIMES)),
        (APART, {"stamps": "read_monotonic"}, Sending(), set()),
        (APART, {"stamps": "read_monotonic", "loop_lag": lag(1)}, Sending(), {"chunk_gap_ms"}),
        (APART, {"stamps": "read_monotonic", "loop_lag": lag(30)}, Sending(), set(METRICS)),
        (APART, {"clock_steps_ms": [0.4, -300]}, Sending(), set(METRICS)),
        (APART, {"clock_steps_ms": [300], "stamps": "read_monotonic"}, Sending(), set()),
        (APART, {"steal_share": 0.3}, Sending(), set()),
        (APART, {"steal_share": 0.3, "loop_lag": lag(9)}, Sending(), set(METRICS)),
        (APART, {}, Sending(turnaround=lag(3, 1), turnaround_share=0.1), set()),
        (APART, {}, Sending(turnaround=lag(9, 5), turnaround_share=0.001), set()),
        (APART, {}, Sending(turnaround=lag(9, 5), turnaround_share=0.05), set(METRICS)),
        (APART, {}, Sending(late=lag(1), target_rps=200, achieved_rps=199.5), set()),
        (APART, {}, Sending(late=lag(40), late_share=0.01, target_rps=200, achieved_rps=200), set()),
        (APART, {}, Sending(late=lag(1), target_rps=200, achieved_rps=92), set(METRICS)),
        (APART, {}, Sending(late=lag(40), late_share=0.1, target_rps=200, achieved_rps=200), set(METRICS)),
        ([], {"clock_steps_ms": [300]}, Sending(), set()),
    ],
    ids=[
        "all well",
        "late, but the kernel stamped",
        "first chunks together, not late",
        "first chunks together, and late",
        "chunks together",
        "reads without stamps",
        "own stamps, not late",
        "own stamps, late for gaps",
        "own stamps, late",
        "clock stepped",
        "clock stepped, own stamps",
        "steal that did nothing",
        "steal",
        "quick to send again",
        "little of the time",
        "slow to send again",
        "open loop kept",
        "open loop late at times",
        "open loop too slow",
        "open loop late",
        "nothing measured",
    ],
)
def test_a_metric_is_doubted_for_what_would_spoil_it_and_no_other(streams, health, sending, doubted):
    assert set(doubts(streams, msgspec.structs.replace(GOOD, **health), sending)) == doubted


def test_a_step_of_the_clock_has_a_code_of_its_own():
    stepped = msgspec.structs.replace(GOOD, clock_steps_ms=[-250.0])
    found = doubts(APART, stepped, Sending(achieved_rps=1, target_rps=2))
    assert {doubt.code for doubt in found.values()} == {"clock_stepped"}
    assert "-250.0 ms" in found["ttft_ms"].detail


def test_the_self_test_compares_with_the_truth_and_says_how_far_it_holds():
    tried = [
        ("4 streams, 10 ms", Step(streams=4, gap_us=10_000, chunks=20)),
        ("100/s, Poisson", Step(streams=1, gap_us=5_000, chunks=5, requests=30, rate=100)),
    ]
    found = selftest(uvloop.run, tried=tried, repeats=1)
    assert all(line.certified for line in found.lines)
    assert set(found.ceiling) == {
        "streams",
        "chunks_per_s",
        "speed_streams",
        "speed_chunks_per_s",
        "open_loop_rps",
    }
    text = table(found)
    assert "4 streams, 10 ms" in text
    assert f"Stamps: {found.stamps}" in text
    again = msgspec.json.decode(encode(found))
    assert again["schema"] == "recover-and-bench/selftest"
    assert again["lines"][1]["found"]["step"]["rate"] == 100
