"""A fault is proposed by a crash, proved by the second, tried again on another build, settled by a person."""

import json

import jsonschema
import pytest
from bench_runner.cli import main
from bench_runner.errors import BenchError
from bench_runner.quirks.store import read_memory

from tests.unit.bench_runner.campaign_words import events, statuses, two_plan
from tests.unit.bench_runner.conftest import ROOT, SMALL_PLAN

B8 = "tp1-ddtree-b8"
NAME = "cuda_illegal_instruction_tp1_ddtree_b8"
DIES = {"faults": [{"name": "die"}]}


def deploy(bench, *, build="fork 1", behaviour=None, **flags):
    bench.simulate("tp1-auto", engine_build=build)
    bench.simulate(B8, behaviour, engine_build=build, flags={"budget": 8, **flags})


def node_is(bench, **facts):
    bench.folder.environment.write_text(json.dumps({"node": "ct200", "host": "pve", "host_facts": facts}))


def memory(bench):
    return {entry.name: entry for entry in read_memory(bench.folder.quirks).quirks}


def started(bench):
    return [event["cell"] for event in events(bench, "cell_started")]


@pytest.fixture
def proved(bench):
    """A node on which b8 has crashed twice."""
    node_is(bench, driver_version="580.1")
    two_plan(bench)
    deploy(bench, behaviour=DIES)
    bench.run()
    bench.run()
    return bench


def test_the_first_crash_proposes_and_the_second_proves(bench):
    node_is(bench, driver_version="580.1")
    two_plan(bench)
    deploy(bench, behaviour=DIES)

    first = bench.run()
    entry = memory(bench)[NAME]
    assert (entry.state, entry.signature, len(entry.seen)) == ("proposed", "cuda_illegal_instruction", 1)
    assert (entry.subject.flags, entry.subject.tensor_parallelism) == ({"budget": 8}, 1)
    assert f"; quirk {NAME} proposed" in first.message
    assert events(bench, "server_crashed")[0]["detail"]["quirk"] == {"name": NAME, "state": "proposed"}
    [note] = bench.status()["quirks"]
    assert "applies after 1 more such crash, or now: bench_runner quirks accept" in note["sentence"]

    second = bench.run()
    assert memory(bench)[NAME].state == "active"
    assert f"; quirk {NAME} applies now" in second.message
    assert statuses(bench)[f"{B8}.code.8.r1"] == "crashed"
    held = bench.cell(f"{B8}.code.16.r1")
    assert (held.status, held.reasons[0].code) == ("skipped", "quirk")
    assert held.reasons[0].detail == f"{NAME}: cuda illegal instruction in code/8"
    assert bench.status()["quirks"][0]["cells"] == 1
    assert "## Known faults" in bench.folder.status_text.read_text()
    bench.check_schemas()

    count = len(bench.events())
    bench.run()
    assert len(bench.events()) == count


def test_it_holds_the_configuration_back_in_another_campaign_too(proved):
    two_plan(proved, name="other", workloads={"code": {"points": [32], "requests": 1}})
    proved.folder = type(proved.folder)(proved.folder.root.parent / "other")
    proved.folder.root.mkdir()
    node_is(proved, driver_version="580.1")
    two_plan(proved, name="other", workloads={"code": {"points": [32], "requests": 1}})
    proved.run()
    assert statuses(proved) == {"tp1-auto.code.32.r1": "ok", f"{B8}.code.32.r1": "skipped"}


@pytest.mark.parametrize("what", ["engine build", "driver"])
def test_another_build_or_driver_makes_one_cell_try_it_again(proved, what, capsys):
    if what == "driver":
        node_is(proved, driver_version="590.2")
        deploy(proved)
    else:
        deploy(proved, build="fork 2")
    arguments = ["plan", f"--dir={proved.folder.root}", f"--configurations={proved.configurations}"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    was = "580.1, is 590.2" if what == "driver" else "fork 1, is fork 2"
    assert f"probe of {NAME}: the {what} was {was} (this cell tries it first)" in said

    outcome = proved.run()
    assert statuses(proved)[f"{B8}.code.16.r1"] == "ok"
    assert statuses(proved)[f"{B8}.code.8.r1"] == "ok"
    entry = memory(proved)[NAME]
    assert entry.state == "retired"
    assert f"; quirk {NAME} retired" in outcome.message
    assert "retired 20" in proved.status()["quirks"][0]["sentence"]


def test_the_same_crash_on_the_new_build_makes_it_apply_there_at_once(proved):
    deploy(proved, build="fork 2", behaviour=DIES)
    before = len(started(proved))
    proved.run()
    assert started(proved)[before:].count(f"{B8}.code.8.r1") == 1
    assert f"{B8}.code.16.r1" not in started(proved)[before:]
    assert memory(proved)[NAME].state == "active"
    assert proved.cell(f"{B8}.code.16.r1").reasons[0].code == "quirk"
    count = len(started(proved))
    proved.run()  # once is enough there
    assert len(started(proved)) == count


def test_the_probe_is_the_cell_that_died(bench):
    """b12 of the story: the first cells go well, and the longer answers kill it."""
    two_plan(bench, workloads={"code": {"points": [8, 64], "requests": 1}})
    deploy(bench, behaviour={"faults": [{"name": "die", "min_output": 60}]})
    bench.run()
    bench.run()
    deploy(bench, build="fork 2", behaviour={"faults": [{"name": "die", "min_output": 60}]})
    before = len(started(bench))
    bench.run()
    assert [cell for cell in started(bench)[before:] if cell.startswith(B8)] == [f"{B8}.code.64.r1"]
    assert bench.cell(f"{B8}.code.8.r1").reasons[0].code == "quirk"


def test_a_retired_quirk_applies_still_where_it_was_seen(proved):
    deploy(proved, build="fork 2")
    proved.run()
    deploy(proved, build="fork 1", behaviour=DIES, other=1)  # other flags: another configuration to it
    deploy(proved, build="fork 1", behaviour=DIES)
    two_plan(proved, seed=2)
    before = len(started(proved))
    proved.run()
    assert not [cell for cell in started(proved)[before:] if cell.startswith(B8)]


def test_a_good_result_is_kept_whatever_is_known_later(bench):
    two_plan(bench)
    deploy(bench)
    bench.run()
    quirk = {"name": "too_late", "reason": "known by now", "when": "budget < 15"}
    two_plan(bench, quirks=[quirk])
    assert bench.run().message == "4 cells: all kept from before, nothing to run"


def test_a_warning_lets_the_cell_run_and_stands_beside_it(bench, capsys):
    two_plan(
        bench,
        quirks=[{"name": "slow", "reason": "loses acceptance", "when": "budget < 15", "verdict": "warn"}],
    )
    deploy(bench)
    arguments = ["plan", f"--dir={bench.folder.root}", f"--configurations={bench.configurations}"]
    assert main(arguments) == 0
    assert "warning: slow: loses acceptance" in capsys.readouterr().out
    bench.run()
    assert statuses(bench)[f"{B8}.code.8.r1"] == "ok"
    warned = [event["detail"].get("warning") for event in events(bench, "cell_started")]
    assert warned == [None, None, "slow: loses acceptance", "slow: loses acceptance"]
    assert bench.status()["quirks"][0]["name"] == "slow"


def test_what_an_out_of_memory_killer_did_is_no_quirk(bench):
    from bench_runner.quirks.registry import Quirks  # noqa: PLC0415 - this test's own
    from bench_runner.quirks.scope import Place  # noqa: PLC0415

    from tests.unit.bench_runner.test_bench_quirk_words import CELL, DEPLOYMENT  # noqa: PLC0415

    quirks = Quirks([], bench.folder.quirks, Place())
    for signature in ("oom_kill", "killed_by_someone", "gpu_fell_off_bus", "port_in_use", "unknown"):
        assert quirks.crashed(signature, CELL, DEPLOYMENT, campaign="c", run="r") is None
    assert not bench.folder.quirks.exists()


class TestAPersonsWord:
    def quirks(self, bench, *words):
        return main(["quirks", *words, "--root", str(bench.folder.root.parent)])

    def test_accept_makes_it_apply_at_once(self, bench, capsys):
        two_plan(bench)
        deploy(bench, behaviour=DIES)
        bench.run()
        assert self.quirks(bench, "accept", NAME) == 0
        assert f"{NAME} applies on this node, from the next run on" in capsys.readouterr().out
        before = len(started(bench))
        bench.run()
        assert not [cell for cell in started(bench)[before:] if cell.startswith(B8)]
        assert statuses(bench) == {
            "tp1-auto.code.8.r1": "ok",
            "tp1-auto.code.16.r1": "ok",
            f"{B8}.code.8.r1": "crashed",
            f"{B8}.code.16.r1": "skipped",
        }

    def test_reject_lets_the_cells_run(self, proved, capsys):
        deploy(proved)
        assert self.quirks(proved, "reject", NAME) == 0
        assert "does not apply any more" in capsys.readouterr().out
        proved.run()
        assert statuses(proved)[f"{B8}.code.16.r1"] == "ok"
        assert self.quirks(proved) == 0
        assert f"rejected  {NAME}: " in capsys.readouterr().out

    def test_a_plans_quirk_can_be_rejected_on_a_node(self, bench, capsys):
        two_plan(bench, quirks=[{"name": "planned_one", "reason": "crashes", "when": "budget < 15"}])
        deploy(bench)
        bench.run()
        assert statuses(bench)[f"{B8}.code.8.r1"] == "skipped"
        assert self.quirks(bench, "list") == 0
        assert "planned   planned_one: crashes" in capsys.readouterr().out
        assert self.quirks(bench, "reject", "planned_one") == 0
        bench.run()
        assert statuses(bench)[f"{B8}.code.8.r1"] == "ok"

    def test_a_quirk_that_ended_is_not_said_to_apply(self, bench, capsys):
        old = {"name": "old_one", "reason": "x", "when": "budget", "expires": "2026-01-31"}
        two_plan(bench, quirks=[old])
        assert self.quirks(bench, "accept", "old_one") == 2
        assert "old_one ended on 2026-01-31, as its plan says" in capsys.readouterr().err
        deploy(bench)
        bench.run()
        assert set(statuses(bench).values()) == {"ok"}

    def test_show_and_json_are_for_programs(self, proved, capsys):
        schema = json.loads((ROOT / "collector/schemas/quirks.schema.json").read_bytes())
        jsonschema.validate(json.loads(proved.folder.quirks.read_bytes()), schema)
        assert self.quirks(proved, "show", NAME) == 0
        shown = json.loads(capsys.readouterr().out)
        assert [sighting["cell"] for sighting in shown["node"]["seen"]] == [f"{B8}.code.8.r1"] * 2
        assert self.quirks(proved, "list", "--json") == 0
        assert json.loads(capsys.readouterr().out)["node"]["quirks"][0]["name"] == NAME

    def test_an_unknown_name_is_refused_with_the_nearest(self, proved, capsys):
        assert self.quirks(proved, "accept", NAME[:-1]) == 2
        assert f"did you mean '{NAME}'?" in capsys.readouterr().err
        assert self.quirks(proved, "show") == 2
        assert "which one?" in capsys.readouterr().err


def test_a_memory_that_cannot_be_read_stops_the_run_before_it_starts(bench):
    bench.simulate("tp1-auto")
    bench.plan(SMALL_PLAN)
    bench.folder.quirks.write_text("{")
    with pytest.raises(BenchError, match=r"quirks.json can't be read: .*; move it away to begin anew"):
        bench.run()
    bench.folder.quirks.write_text(
        '{"schema": "recover-and-bench/quirks", "schema_version": 9, "quirks": []}'
    )
    with pytest.raises(BenchError, match="schema_version 9 is newer than 1; update the runner"):
        bench.run()
