"""Models that take turns in memory: asked for before each start, followed, and told; a failure is no zero."""

import json
import signal

import pytest
from bench_runner import prepared
from bench_runner.cells import expand
from bench_runner.plan_check import check_plan

from tests.sim.control import Switch
from tests.unit.bench_runner.campaign_words import TWO, codes, events, statuses, two_plan, wait_for

PROGRESS = {
    "bytes": 12_300_000_000,
    "total_bytes": 595_000_000_000,
    "rate_bytes_s": 1_150_000_000,
    "seconds_left": 507,
}
COPYING = {"state": "staging", "model": "kimi", "progress": PROGRESS}
SWITCHED = {
    "state": "done",
    "removed": ["qwen"],
    "freed_bytes": 52_000_000_000,
    "summary": "qwen removed; kimi: copied 595.0 GB",
}
NO_ROOM = {
    "state": "failed",
    "error": {"code": "no_room", "message": "kimi: no room beside qwen, which python reads"},
}


@pytest.fixture
def turns(bench):
    """Two configurations, each with a model of its own, and a switch between them."""
    two_plan(bench)
    for name, model in zip(TWO, ("qwen", "kimi")):
        bench.simulate(name, model=model)
    switch = Switch([["qwen"], ["kimi"]], dict(zip(TWO, (["qwen"], ["kimi"]))))
    bench.start_control().switch = switch
    return bench


def test_each_configuration_asks_for_its_models_before_it_is_started(turns):
    turns.control.switch.scripts[1] = [{"state": "checking"}, COPYING, SWITCHED]

    outcome = turns.run()

    assert set(statuses(turns).values()) == {"ok"}
    orders = [(verb, name) for verb, name in turns.control.asked if verb in ("stage", "start")]
    assert orders == [(verb, name) for name in TWO for verb in ("stage", "start")]
    assert [event["configuration"] for event in events(turns, "models_staged")] == TWO
    detail = events(turns, "models_staged")[1]["detail"]
    assert {key: detail[key] for key in ("summary", "models", "removed")} == {
        "summary": SWITCHED["summary"],
        "models": ["kimi"],
        "removed": ["qwen"],
    }
    assert 0.2 < detail["seconds"] < 5
    assert outcome.message.endswith(f"; models switched for {TWO[1]}: {SWITCHED['summary']}")
    turns.check_schemas()


def test_no_cell_has_begun_while_the_models_are_awaited(turns):
    turns.control.switch.seconds = 1.0

    turns.run()

    kinds = [event["event"] for event in turns.events() if event.get("configuration")]
    assert kinds[:3] == ["models_staged", "server_starting", "server_ready"]
    assert all(event["detail"]["duration_s"] < 1.0 for event in events(turns, "cell_ended"))


def test_how_far_the_copy_is_stands_in_the_status(turns):
    turns.control.switch.scripts[0] = [COPYING]
    turns.control.switch.seconds = 60.0
    process = turns.start_process()
    try:
        wait_for(
            lambda: turns.folder.status_text.exists() and "12.3 of" in turns.folder.status_text.read_text()
        )
        status, text = turns.status(), turns.folder.status_text.read_text()
    finally:
        process.kill()
        process.communicate()

    wanted = f"cell 1/4 {TWO[0]} code/8: staging kimi: 12.3 of 595.0 GB, 1.15 GB/s, 507 s left"
    assert status["current"]["phase"] == "staging"
    assert status["message"] == wanted
    assert wanted in text
    turns.check_schemas()


def test_models_that_cannot_be_there_fail_their_configuration_and_no_other(turns):
    turns.control.switch.scripts[0] = [NO_ROOM]

    outcome = turns.run()

    assert outcome.state == "finished"
    found = statuses(turns)
    assert [found[f"{TWO[0]}.code.{point}.r1"] for point in (8, 16)] == ["failed", "skipped"]
    assert [found[f"{TWO[1]}.code.{point}.r1"] for point in (8, 16)] == ["ok", "ok"]
    assert codes(turns, f"{TWO[0]}.code.8.r1") == codes(turns, f"{TWO[0]}.code.16.r1") == ["model_not_staged"]
    assert turns.cell(f"{TWO[0]}.code.8.r1").reasons[0].detail == NO_ROOM["error"]["message"]
    assert turns.cell(f"{TWO[0]}.code.8.r1").metrics in (None, {})
    assert ("start", TWO[0]) not in turns.control.asked
    turns.check_schemas()


def test_a_unit_that_ends_without_a_word_is_told_by_its_status(turns):
    turns.control.switch.unit_fails = True

    turns.run()

    detail = turns.cell(f"{TWO[0]}.code.8.r1").reasons[0].detail
    assert detail == (
        "model-stage-switch@0.service ended without a result (exit-code, status 75);"
        " its last words: model_stager: another one is at work"
    )


def test_what_an_earlier_switch_has_left_is_not_taken_for_this_one(turns):
    """The state file says done, of a run before: the unit that ends without writing has failed."""
    turns.control.switch._before = {"schema_version": 1, "run": "earlier", "state": "done", "set": 0}
    turns.control.switch.unit_fails = True

    turns.run()

    assert codes(turns, f"{TWO[0]}.code.8.r1") == ["model_not_staged"]


def test_a_stopped_runner_ends_at_once_and_the_next_one_finds_the_switch_at_work(turns):
    turns.control.switch.seconds = 2.5
    turns.control.switch.scripts[0] = [COPYING, {"state": "done", "summary": "there"}]
    process = turns.start_process()
    wait_for(lambda: turns.folder.status.exists() and "12.3 of" in turns.folder.status.read_text())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=3)

    assert process.returncode == 4
    assert turns.status()["state"] == "stopped"
    assert not [event for event in turns.events() if event.get("cell")]
    assert {verb for verb, _ in turns.control.asked} <= {"show", "stage", "staging"}
    assert turns.run().state == "finished"
    assert turns.control.switch.begun == [0, 1]
    assert set(statuses(turns).values()) == {"ok"}


def plan_of(order):
    names = ["q-auto", "q-ngram", "k-auto"]
    workloads = {"code": {"points": [8], "requests": 2, "prompt_tokens": 48}}
    more = {"configurations": names, "repeats": 2, "order": order, "workloads": workloads}
    return check_plan({"schema_version": 1, "name": "p", "baseline": "q-auto", **more})


TURNS = {"q-auto": "qwen", "q-ngram": "qwen", "k-auto": "kimi"}


@pytest.mark.parametrize(
    ("order", "turns", "expected"),
    [
        ("rounds", None, "q-auto 1, q-ngram 1, k-auto 1, q-auto 2, q-ngram 2, k-auto 2"),
        ("rounds", TURNS, "q-auto 1, q-ngram 1, q-auto 2, q-ngram 2, k-auto 1, k-auto 2"),
        ("sweeps", TURNS, "q-auto 1, q-auto 2, q-ngram 1, q-ngram 2, k-auto 1, k-auto 2"),
    ],
)
def test_all_repeats_of_one_set_of_models_come_before_the_next_set(order, turns, expected):
    cells = expand(plan_of(order), turns)

    assert ", ".join(f"{cell.configuration} {cell.repeat}" for cell in cells) == expected


def test_the_node_says_whether_models_take_turns(turns, tmp_path, monkeypatch):
    two_plan(turns, repeats=2, order="rounds")
    path = tmp_path / "switch-plan.json"
    monkeypatch.setattr(prepared, "SWITCH_PLAN", path)
    path.write_text(json.dumps({}))

    turns.run()

    assert turns.control.switch.begun == [0, 1]


def test_a_draft_that_waits_for_its_turn_is_not_missed_before(turns, tmp_path, monkeypatch):
    path = tmp_path / "switch-plan.json"
    monkeypatch.setattr(prepared, "SWITCH_PLAN", path)
    flags = {"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "draft@1"}
    turns.simulate(
        TWO[1], model="kimi", draft_model="draft", draft_model_path=str(tmp_path / "draft"), flags=flags
    )

    turns.run()
    missed = codes(turns, f"{TWO[1]}.code.8.r1")
    path.write_text("{}")
    turns.run()

    assert missed == ["draft_model_missing"]
    assert turns.cell(f"{TWO[1]}.code.8.r1").status == "ok"
