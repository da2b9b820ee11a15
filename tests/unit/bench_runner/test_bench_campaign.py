"""Whole campaigns on simulated servers that are real processes: each status and reason, and the next run."""

import json
import time

import msgspec
import pytest
from bench_runner import measure
from bench_runner.records import read_requests

from tests.unit.bench_runner.campaign_words import codes, events, statuses, two_plan
from tests.unit.bench_runner.conftest import SMALL_PLAN


def test_a_good_campaign_is_measured_once_and_kept(bench):
    bench.simulate("tp1-auto", {"speculating": True, "tokens_per_chunk": 3})
    outcome = bench.run()
    assert (outcome.state, outcome.message) == ("finished", "2 cells: 2 ok (2 measured now)")
    bench.check_schemas()
    cell = bench.cell("tp1-auto.code.16.r1")
    assert cell.baseline
    assert (cell.requests.planned, cell.requests.ok, cell.requests.failed) == (2, 2, 0)
    assert cell.metrics.completion_tokens == 32
    assert cell.metrics.accept_length == pytest.approx(32 / 12)
    assert cell.metrics.cached_tokens == 0
    records = read_requests(bench.folder.requests("tp1-auto.code.16.r1"))
    assert [record.ok for record in records] == [True, True]
    assert all(record.prompt_tokens == 48 for record in records)
    assert max(len(json.dumps(line)) for line in records[0].__struct_fields__) < 400
    status = bench.status()
    assert [todo["status"] for todo in status["todos"]] == ["completed", "completed"]
    assert bench.control.units["tp1-auto"].show()["processes"] == 0

    before = {path: path.read_bytes() for path in bench.folder.root.rglob("*") if path.is_file()}
    again = bench.run()
    assert again.message == "2 cells: all kept from before, nothing to run"
    assert bench.status()["kept"] == 2
    after = {path: path.read_bytes() for path in bench.folder.root.rglob("*") if path.is_file()}
    changed = {path.name for path in before if before[path] != after.get(path)}
    assert changed <= {"status.json", "STATUS.md"}
    assert [verb for verb, _ in bench.control.asked].count("start") == 1


def test_the_dead_branch_of_the_story_has_a_status_everywhere_and_a_number_nowhere(bench):
    """b8 dies in its first verify, b12 lives through its warm-up and dies at 256, 30k contexts don't fit."""
    bench.plan(
        SMALL_PLAN,
        configurations=["tp1-auto", "tp1-ddtree-b8", "tp1-ddtree-b12"],
        workloads={
            "code": {"points": [32, 256], "requests": 2, "prompt_tokens": 48},
            "context": {"points": [30000]},
        },
        canary={"output_tokens": 32},
    )
    bench.simulate("tp1-auto")
    bench.simulate("tp1-ddtree-b8", {"faults": [{"name": "die"}]})
    bench.simulate("tp1-ddtree-b12", {"faults": [{"name": "die", "min_output": 200}]})
    outcome = bench.run()
    assert outcome.state == "finished"
    bench.check_schemas()
    assert statuses(bench) == {
        "tp1-auto.code.32.r1": "ok",
        "tp1-auto.code.256.r1": "ok",
        "tp1-auto.context.30000.r1": "skipped",
        "tp1-ddtree-b8.code.32.r1": "crashed",
        "tp1-ddtree-b8.code.256.r1": "skipped",
        "tp1-ddtree-b8.context.30000.r1": "skipped",
        "tp1-ddtree-b12.code.32.r1": "ok",
        "tp1-ddtree-b12.code.256.r1": "crashed",
        "tp1-ddtree-b12.context.30000.r1": "skipped",
    }
    died = bench.cell("tp1-ddtree-b12.code.256.r1")
    assert died.metrics is None
    assert died.evidence["signature"] == "cuda_illegal_instruction"
    assert codes(bench, died.cell)[0] == "server_crashed"
    assert died.reasons[0].detail.startswith(
        "cuda_illegal_instruction: CUDA error: an illegal instruction was encountered"
    )
    assert "(unit failed/failed, result signal, exit 2/9)" in died.reasons[0].detail
    waits = bench.cell("tp1-ddtree-b8.code.256.r1").reasons[0].detail
    assert waits == "the server died in tp1-ddtree-b8 code/32: cuda_illegal_instruction"
    assert (died.requests.planned, died.requests.failed) == (2, 2)
    assert [record.why for record in read_requests(bench.folder.requests(died.cell))] == [
        "truncated",
        "not_sent",
    ]
    at_once = bench.cell("tp1-ddtree-b8.code.32.r1")
    assert codes(bench, at_once.cell) == ["canary_truncated"]
    assert at_once.evidence["signature"] == "cuda_illegal_instruction"
    assert codes(bench, "tp1-ddtree-b8.code.256.r1") == ["server_crashed"]
    unfit = bench.cell("tp1-auto.context.30000.r1").reasons[0]
    assert unfit.code == "does_not_fit"
    assert "the largest that fits is 2032 prompt tokens" in unfit.detail
    assert "tp1-ddtree-b8 code/32 crashed (canary_truncated)" in outcome.message

    second = bench.run()
    assert [event["cell"] for event in events(bench, "cell_started")][-2:] == [
        "tp1-ddtree-b8.code.32.r1",
        "tp1-ddtree-b12.code.256.r1",
    ]
    assert statuses(bench)["tp1-ddtree-b8.code.256.r1"] == "skipped"
    assert second.state == "finished"
    count = len(bench.events())
    third = bench.run()  # both had their second try: nothing is left to do
    assert len(bench.events()) == count
    assert third.message.startswith("9 cells: 3 ok, 2 crashed, 4 skipped")
    bench.simulate("tp1-ddtree-b8")
    bench.run(retry=True)
    assert statuses(bench)["tp1-ddtree-b8.code.32.r1"] == "ok"
    assert statuses(bench)["tp1-ddtree-b8.code.256.r1"] == "ok"


def test_one_bad_request_of_many_makes_a_cell_partial_unless_tolerated(bench):
    faults = {"faults": [{"name": "zero_tokens", "min_output": 40, "after": 1, "times": 1}]}
    bench.plan(SMALL_PLAN, workloads={"code": {"points": [40], "requests": 4}})
    bench.simulate("tp1-auto", faults)
    bench.run()
    cell = bench.cell("tp1-auto.code.40.r1")
    assert (cell.status, cell.requests.ok, cell.requests.failed) == ("partial", 3, 1)
    assert cell.reasons[0].detail == "1 of 4 requests: 0 of 40 tokens"
    bench.plan(
        SMALL_PLAN,
        workloads={"code": {"points": [40], "requests": 4}},
        tolerance={"failed_requests": 1, "client_ms": 5000},
    )
    bench.run()
    cell = bench.cell("tp1-auto.code.40.r1")
    assert (cell.status, cell.metrics.completion_tokens, cell.attempt) == ("ok", 120, 2)
    kept = sorted(path.name for path in bench.folder.superseded.iterdir())
    assert [name.split(".", 4)[4].partition(".")[2] for name in kept] == ["a1.json", "a1.requests.jsonl.zst"]


def test_a_failed_cell_is_tried_twice_then_only_on_demand(bench):
    bench.plan(SMALL_PLAN, workloads={"code": {"points": [40], "requests": 1}})
    bench.simulate("tp1-auto", {"faults": [{"name": "no_usage", "min_output": 40}]})
    for attempt in (1, 2, 2):
        bench.run()
        assert bench.cell("tp1-auto.code.40.r1").attempt == attempt
    assert len(events(bench, "cell_started")) == 2
    bench.run(retry=True)
    assert bench.cell("tp1-auto.code.40.r1").attempt == 3


@pytest.mark.parametrize(
    ("behaviour", "status", "code"),
    [
        ({"crash_loading": True}, "crashed", "server_crashed_loading"),
        ({"faults": [{"name": "early_stop"}]}, "failed", "canary_early_stop"),
    ],
    ids=["dies loading", "wrong"],
)
def test_a_server_that_is_not_fit_fails_one_cell_and_the_others_wait(bench, behaviour, status, code):
    two_plan(bench, canary={"floor_tps": 40}, limits={"server_ready_s": 1.5, "cell_s": 30, "stall_s": 5})
    bench.simulate("tp1-auto", behaviour)
    bench.simulate("tp1-ddtree-b8")
    started = time.monotonic()
    outcome = bench.run()
    assert time.monotonic() - started < 8
    bench.check_schemas()
    assert statuses(bench) == {
        "tp1-auto.code.8.r1": status,
        "tp1-auto.code.16.r1": "skipped",
        "tp1-ddtree-b8.code.8.r1": "ok",
        "tp1-ddtree-b8.code.16.r1": "ok",
    }
    assert codes(bench, "tp1-auto.code.8.r1") == [code]
    if behaviour.get("crash_loading"):
        assert bench.cell("tp1-auto.code.8.r1").evidence["signature"] == "cuda_out_of_memory"
    assert outcome.state == "finished"
    assert bench.control.units["tp1-auto"].show()["processes"] == 0


def test_a_server_replaced_behind_our_back_is_noticed(bench, monkeypatch):
    bench.simulate("tp1-auto")
    real = measure.Load.run

    async def replaced(self):
        outcomes = await real(self)
        unit = bench.control.units["tp1-auto"]
        unit.stop()
        unit.start()
        return outcomes

    monkeypatch.setattr(measure.Load, "run", replaced)
    bench.run()
    assert statuses(bench) == {"tp1-auto.code.8.r1": "crashed", "tp1-auto.code.16.r1": "skipped"}
    assert codes(bench, "tp1-auto.code.8.r1") == ["server_crashed"]


def test_a_clock_that_steps_makes_the_cell_partial(bench, monkeypatch):
    real, steps = measure.Load.run, iter([[3500.0], []])

    async def stepped(self):
        outcomes = await real(self)
        seen = next(steps)
        self.health = msgspec.structs.replace(self.health, clock_steps_ms=seen, clock_drift_ms=sum(seen))
        return outcomes

    monkeypatch.setattr(measure.Load, "run", stepped)
    bench.simulate("tp1-auto")
    bench.run()
    assert statuses(bench) == {"tp1-auto.code.8.r1": "partial", "tp1-auto.code.16.r1": "ok"}
    assert codes(bench, "tp1-auto.code.8.r1") == ["clock_stepped"]


def test_a_served_context_smaller_than_described_skips_what_does_not_fit(bench):
    bench.plan(SMALL_PLAN, workloads={"code": {"points": [8, 500], "requests": 1}})
    bench.simulate("tp1-auto", {"context": 256})
    bench.run()
    assert codes(bench, "tp1-auto.code.500.r1") == ["does_not_fit_served"]
    starts = len(events(bench, "server_starting"))
    assert bench.run().state == "finished"
    assert len(events(bench, "server_starting")) == starts


def test_a_quirk_skips_with_its_name_and_ends_with_the_engine_build(bench):
    two_plan(
        bench,
        quirks=[
            {
                "name": "sm120_small_budget",
                "flags": {"budget": [8, 12]},
                "engine_builds": ["fork 1"],
                "reason": "illegal instruction in verify",
            }
        ],
    )
    bench.simulate("tp1-auto")
    bench.simulate("tp1-ddtree-b8", flags={"budget": "8"}, engine_build="fork 1")
    bench.run()
    assert statuses(bench)["tp1-ddtree-b8.code.8.r1"] == "skipped"
    reason = bench.cell("tp1-ddtree-b8.code.8.r1").reasons[0]
    assert (reason.code, reason.detail) == ("quirk", "sm120_small_budget: illegal instruction in verify")
    assert ("start", "tp1-ddtree-b8") not in bench.control.asked
    bench.simulate("tp1-ddtree-b8", flags={"budget": "8"}, engine_build="fork 2")
    bench.run()
    assert statuses(bench)["tp1-ddtree-b8.code.8.r1"] == "ok"


def test_all_workloads_send_what_was_planned_and_agree_with_usage(bench):
    bench.plan(
        SMALL_PLAN,
        workloads={
            "code": {"points": [8], "requests": 3, "concurrency": 2},
            "context": {"points": [300], "requests": 2, "output_tokens": 4},
            "concurrency": {"points": [3], "requests_per_client": 2, "output_tokens": 8},
            "agentic": {"points": [3], "conversations": 2, "output_tokens": 6},
        },
    )
    bench.simulate("tp1-auto")
    assert bench.run().message == "4 cells: 4 ok (4 measured now)"
    bench.check_schemas()
    assert bench.cell("tp1-auto.context.300.r1").metrics.prompt_tokens == 600
    assert bench.cell("tp1-auto.concurrency.3.r1").requests.planned == 6
    turns = read_requests(bench.folder.requests("tp1-auto.agentic.3.r1"))
    assert len(turns) == 6
    for conversation in (0, 1):
        lengths = [record.prompt_tokens for record in turns if record.conversation == conversation]
        assert lengths == sorted(set(lengths))
        assert lengths[0] == 64
    starts = [record.sent_ms for record in read_requests(bench.folder.requests("tp1-auto.concurrency.3.r1"))]
    assert sum(start < 5 for start in starts) >= 3


def test_a_conversation_that_breaks_loses_its_later_turns_but_none_is_forgotten(bench):
    bench.plan(SMALL_PLAN, workloads={"agentic": {"points": [4], "conversations": 2, "output_tokens": 50}})
    bench.simulate(
        "tp1-auto", {"faults": [{"name": "error_event", "min_output": 50, "after": 1, "times": 1}]}
    )
    bench.run()
    cell = bench.cell("tp1-auto.agentic.4.r1")
    assert cell.status == "partial"
    assert cell.requests.planned == 8 == cell.requests.ok + cell.requests.failed
    assert {reason.code for reason in cell.reasons} == {"error_event", "not_sent"}


def test_a_server_that_dies_ends_its_cell_at_once(bench):
    bench.plan(
        SMALL_PLAN,
        workloads={"concurrency": {"points": [4], "requests_per_client": 50, "output_tokens": 40}},
    )
    bench.simulate("tp1-auto", {"faults": [{"name": "die", "min_output": 40, "after": 8}]})
    started = time.monotonic()
    bench.run()
    assert time.monotonic() - started < 6
    cell = bench.cell("tp1-auto.concurrency.4.r1")
    assert cell.status == "crashed"
    assert cell.requests.planned == 200 == cell.requests.ok + cell.requests.failed
    whys = [record.why for record in read_requests(bench.folder.requests(cell.cell))]
    assert whys.count("not_sent") > 180


def test_a_stalled_stream_costs_its_own_limit_only(bench):
    bench.plan(
        SMALL_PLAN,
        workloads={"code": {"points": [40], "requests": 2}},
        limits={"server_ready_s": 20, "cell_s": 30, "stall_s": 0.5},
    )
    bench.simulate("tp1-auto", {"faults": [{"name": "stall", "min_output": 40, "times": 1}]})
    bench.run()
    cell = bench.cell("tp1-auto.code.40.r1")
    assert (cell.status, cell.requests.ok) == ("partial", 1)
    assert codes(bench, cell.cell) == ["stalled"]


def test_a_cell_that_takes_too_long_ends_with_its_limit(bench):
    bench.plan(
        SMALL_PLAN,
        workloads={"code": {"points": [400], "requests": 3}},
        limits={"server_ready_s": 20, "cell_s": 1, "stall_s": 5},
    )
    bench.simulate("tp1-auto", {"chunk_s": 0.005})
    bench.run()
    cell = bench.cell("tp1-auto.code.400.r1")
    assert cell.status == "failed"
    assert codes(bench, cell.cell) == ["cell_timed_out"]
