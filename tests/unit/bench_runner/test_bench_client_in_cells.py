"""What the client says of itself is in each cell, and decides with the other checks whether it is ok."""

from __future__ import annotations

import msgspec
import pytest
from bench_runner.cells import definition, traffic
from bench_runner.checks import Observed, verdict
from bench_runner.client.stream import Stream, Usage
from bench_runner.errors import PlanError
from bench_runner.load import Outcome, Sending
from bench_runner.plan import Tolerance
from bench_runner.plan_check import check_plan
from bench_runner.records import read_requests
from bench_runner.server.identity import Identity

from tests.unit.bench_runner.conftest import SMALL_PLAN
from tests.unit.bench_runner.test_bench_certificate import GOOD, MS, lag

RATE = {"points": [20], "seconds": 2, "prompt_tokens": 96, "output_tokens": 8, "shared_prefix_tokens": 48}


def test_an_open_loop_is_a_workload_like_the_others(bench):
    bench.plan(SMALL_PLAN, workloads={"rate": RATE})
    bench.simulate("tp1-auto")
    bench.run()
    bench.check_schemas()
    cell = bench.cell("tp1-auto.rate.20.r1")
    assert (cell.point_unit, cell.requests.ok) == ("requests_per_s", 40)
    # On a machine that is busy with other tests the client may say that it was too slow, and nothing else.
    assert [reason.code for reason in cell.reasons] == ["client_limited"] * (cell.status != "ok")
    if cell.metrics:
        assert cell.metrics.ttft_due_ms.n == 40
        assert cell.metrics.ttft_due_ms.p50 >= cell.metrics.ttft_ms.p50
    records = read_requests(bench.folder.requests("tp1-auto.rate.20.r1"))
    assert all(record.due_ms <= record.sent_ms for record in records)
    assert {record.prompt_tokens for record in records} == {96}
    client = cell.fingerprint.recorded["client"]
    assert client["sending"]["target_rps"] == pytest.approx(20)
    assert client["health"]["stamps"] == cell.fingerprint.recorded["receive_stamps"]
    assert next(check.passed for check in cell.checks if check.name == "client") == (cell.status == "ok")


def test_a_recorded_load_is_sent_again_with_its_own_times_and_lengths(bench):
    trace = [
        {"at_s": 10.4, "prompt_tokens": 60, "output_tokens": 4},
        {"at_s": 10.0, "prompt_tokens": 96, "output_tokens": 8, "shared_prefix_tokens": 48},
        {"at_s": 10.8, "prompt_tokens": 80, "output_tokens": 6},
    ]
    bench.plan(SMALL_PLAN, workloads={"replay": {"points": [200], "requests": trace}})
    bench.simulate("tp1-auto")
    bench.run()
    bench.check_schemas()
    cell = bench.cell("tp1-auto.replay.200.r1")
    assert (cell.point_unit, cell.requests.ok) == ("speed_percent", 3)
    records = read_requests(bench.folder.requests(cell.cell))
    lengths = [(record.prompt_tokens, record.completion_tokens) for record in records]
    assert lengths == [(96, 8), (60, 4), (80, 6)]
    assert [round(record.due_ms - records[0].due_ms) for record in records] == [0, 200, 400]


def test_a_part_of_a_recorded_load_that_can_not_be_is_found():
    wrong = {"at_s": 0, "prompt_tokens": 30, "output_tokens": 4, "shared_prefix_tokens": 20}
    with pytest.raises(PlanError, match=r"replay.requests\[0\].shared_prefix_tokens: found 20, .* at most 6"):
        check_plan({**SMALL_PLAN, "workloads": {"replay": {"points": [100], "requests": [wrong]}}})


def outcomes(*chunks_ms: float) -> list[Outcome]:
    times = [int(at * MS) for at in chunks_ms]
    stream = Stream(sent_ns=0, end_ns=times[-1], chunks_ns=times, usage=Usage(1, len(times)))
    return [Outcome(index=0, conversation=0, turn=0, stream=stream, fault=None)]


def judged(*chunks_ms: float, sending: Sending | None = None, **health):
    server = Identity("1", 1, 1, 0)
    observed = Observed(
        before=server,
        after=server,
        health=msgspec.structs.replace(GOOD, **health),
        sending=sending or Sending(),
    )
    return verdict(outcomes(*chunks_ms), observed, planned=1, tolerance=Tolerance())


def test_a_client_that_did_not_send_what_was_planned_makes_a_cell_partial():
    found = judged(50, 60, 70, sending=Sending(target_rps=200, achieved_rps=92))
    assert (found.status, [reason.code for reason in found.reasons]) == ("partial", ["client_limited"])
    assert "92.00 of 200.00 requests a second" in found.reasons[0].detail
    assert found.client["doubts"]["output_tps"] == found.reasons[0].detail


def test_a_doubted_metric_that_is_no_headline_is_only_left_out():
    found = judged(50, 60, 60, 70)
    assert (found.status, found.doubted) == ("ok", ["chunk_gap_ms"])
    assert found.checks[-1].detail.startswith("not certified: chunk_gap_ms: 1 of 4 chunks")


def test_a_step_of_the_clock_is_one_reason_of_its_own():
    found = judged(50, 60, 70, clock_steps_ms=[900.0], clock_drift_ms=900.0)
    assert [reason.code for reason in found.reasons] == ["clock_stepped"]
    small = judged(50, 60, 70, clock_steps_ms=[3.0], clock_drift_ms=3.0, loop_lag=lag(0.1))
    assert (small.status, small.reasons[0].code) == ("partial", "clock_stepped")


def test_a_prefix_that_all_share_leaves_each_prompt_a_part_of_its_own():
    plan = check_plan({**SMALL_PLAN, "workloads": {"rate": RATE}})
    assert traffic(plan, "rate", 20).shared_tokens == 48
    with pytest.raises(PlanError, match="shared_prefix_tokens: found 90, needed at most 72"):
        check_plan({**SMALL_PLAN, "workloads": {"rate": {**RATE, "shared_prefix_tokens": 90}}})


def test_cells_from_before_prefixes_could_be_shared_are_the_same_cells():
    plan = check_plan({**SMALL_PLAN, "workloads": {"concurrency": {"points": [2]}}})
    assert "shared_prefix_tokens" not in definition(plan, "concurrency")
    sharing = {"points": [2], "shared_prefix_tokens": 16}
    other = check_plan({**SMALL_PLAN, "workloads": {"concurrency": sharing}})
    assert definition(other, "concurrency")["shared_prefix_tokens"] == 16
