"""A campaign that ends in time: with what it has, the other cells pending with the reason, resumed later."""

from datetime import datetime, timedelta, timezone

import pytest
from bench_runner import runner
from bench_runner.deadline import DeadlineError, deadline_at

from tests.unit.bench_runner.campaign_words import events, statuses, two_plan
from tests.unit.bench_runner.conftest import SMALL_PLAN

NOON = datetime(2026, 12, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("90m", timedelta(minutes=90)),
        ("7h30m", timedelta(hours=7, minutes=30)),
        ("1d", timedelta(days=1)),
        ("45s", timedelta(seconds=45)),
        ("2026-12-01T15:00+01:00", timedelta(hours=2)),
        ("2026-12-01 13:00:00+00:00", timedelta(hours=1)),  # as YAML's own times become text
        ("2026-12-01T13:00Z", timedelta(hours=1)),
        ("2026-11-01T13:00Z", timedelta(days=-30, hours=1)),
    ],
)
def test_a_deadline_is_a_duration_or_a_time(text, after):
    assert deadline_at(text, NOON) == NOON + after


def test_an_hour_is_the_next_such_one_by_the_nodes_clock():
    here = NOON.astimezone()
    assert deadline_at(f"{here.hour:02d}:30", NOON) == NOON + timedelta(minutes=30)
    assert deadline_at(f"{here.hour:02d}:00", NOON) == NOON + timedelta(days=1)


@pytest.mark.parametrize("text", ["", "8", "soon", "25:00", "2026-12-01", "h", "-1h", "99999999999d"])
def test_what_is_no_deadline_is_refused(text):
    with pytest.raises(DeadlineError):
        deadline_at(text, NOON)


def test_after_the_deadline_no_cell_starts_and_the_next_run_goes_on(bench, monkeypatch):
    class Clock(datetime):
        """It is an hour later as soon as a cell has ended."""

        @classmethod
        def now(cls, tz=None):
            measured = bench.folder.cells.exists() and any(bench.folder.cells.glob("*.json"))
            return datetime.now(tz) + timedelta(hours=bool(measured))

    points = [8, 9, 10, 11]
    bench.plan(SMALL_PLAN, workloads={"code": {"points": points, "requests": 1, "prompt_tokens": 48}})
    bench.simulate("tp1-auto")
    with monkeypatch.context() as patched:
        patched.setattr(runner, "datetime", Clock)
        outcome = bench.run(deadline="30m")
    assert outcome.state == "finished"
    done = statuses(bench)
    assert done == {"tp1-auto.code.8.r1": "ok"}
    bench.check_schemas()
    left = [todo for todo in bench.status()["todos"] if todo["status"] == "pending"]
    assert len(left) == len(points) - len(done)
    assert all(todo["reason"].startswith("deadline: not begun before the deadline, 20") for todo in left)
    assert f"{len(left)} pending (deadline) ({len(done)} measured now)" in outcome.message
    assert events(bench, "run_ended")[0]["detail"] == {"state": "finished", "left": "deadline"}
    assert bench.control.units["tp1-auto"].show()["processes"] == 0

    assert bench.run().message.startswith(f"4 cells: 4 ok ({len(left)} measured now)")


def test_no_server_is_started_after_it(bench):
    bench.plan(SMALL_PLAN, deadline="2026-01-01T00:00Z")
    bench.simulate("tp1-auto")
    outcome = bench.run()
    assert outcome.message == "2 cells: 2 pending (deadline)"
    assert not events(bench, "server_starting")
    assert (
        bench.run(deadline="1h").message == "2 cells: 2 ok (2 measured now)"
    )  # the run's word before the plan's


def test_a_quick_campaign_measures_its_cells_and_leaves_the_others_for_later(bench):
    two_plan(bench)
    bench.simulate("tp1-auto")
    bench.simulate("tp1-ddtree-b8")
    outcome = bench.run(quick=True)
    assert set(statuses(bench)) == {"tp1-auto.code.8.r1", "tp1-ddtree-b8.code.8.r1"}
    assert outcome.message == "4 cells: 2 ok, 2 pending (not in quick) (2 measured now)"
    bench.check_schemas()
    count = len(bench.events())
    bench.run(quick=True)
    assert len(bench.events()) == count
    assert bench.run().message == "4 cells: 4 ok (2 measured now)"


def test_repeats_in_rounds_load_each_server_again_and_a_crash_ends_all_rounds_of_it(bench):
    two_plan(bench, repeats=2, order="rounds", workloads={"code": {"points": [8], "requests": 1}})
    bench.simulate("tp1-auto")
    bench.simulate("tp1-ddtree-b8", {"faults": [{"name": "die"}]})
    bench.run()
    assert [event["configuration"] for event in events(bench, "server_starting")] == [
        "tp1-auto",
        "tp1-ddtree-b8",
        "tp1-auto",
    ]
    assert statuses(bench) == {
        "tp1-auto.code.8.r1": "ok",
        "tp1-auto.code.8.r2": "ok",
        "tp1-ddtree-b8.code.8.r1": "crashed",
        "tp1-ddtree-b8.code.8.r2": "skipped",
    }
