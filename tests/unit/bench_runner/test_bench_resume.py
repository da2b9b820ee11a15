"""What an earlier run, a kill or another identity leaves to the next run."""

import json
import signal

import pytest
from bench_runner.cli import main

from tests.unit.bench_runner.campaign_words import codes, events, statuses, wait_for
from tests.unit.bench_runner.conftest import SMALL_PLAN


@pytest.mark.parametrize("damage", ["edited", "missing", "requests edited", "requests missing"])
def test_an_ok_cell_whose_files_are_not_what_was_written_runs_again(bench, damage):
    bench.simulate("tp1-auto")
    bench.run()
    name = "tp1-auto.code.8.r1"
    path = bench.folder.requests(name) if "requests" in damage else bench.folder.cell(name)
    if "edited" in damage:
        path.write_bytes(path.read_bytes()[:-9] + b"different")
    else:
        path.unlink()
    outcome = bench.run()
    assert outcome.message == "2 cells: 2 ok (1 measured now)"
    assert "journal and files disagree" in events(bench, "cell_started")[-1]["detail"]["why"]
    assert bench.run().message.endswith("all kept from before, nothing to run")


def test_another_identity_runs_again_and_the_old_result_is_not_destroyed(bench):
    bench.simulate("tp1-auto", engine_build="old")
    bench.run()
    old = bench.folder.cell("tp1-auto.code.8.r1").read_bytes()
    bench.simulate("tp1-auto", engine_build="new")
    bench.run()
    assert bench.cell("tp1-auto.code.8.r1").fingerprint.identity["engine_build"] == "new"
    assert old in [path.read_bytes() for path in bench.folder.superseded.iterdir()]
    assert "another identity" in events(bench, "cell_started")[-1]["detail"]["why"]


@pytest.mark.parametrize("described", ["sglang 0.5.22", "sglang 0.6.1.post1"])
def test_a_server_of_another_build_than_was_deployed_is_not_measured(bench, described):
    """The package was upgraded after the deploy: the numbers would stand under the wrong identity."""
    bench.simulate("tp1-auto", engine_build=described)
    bench.run()
    assert statuses(bench) == {"tp1-auto.code.8.r1": "failed", "tp1-auto.code.16.r1": "skipped"}
    reason = bench.cell("tp1-auto.code.8.r1").reasons[0]
    assert reason.code == "server_build_differs"
    assert f"says that it is 0.5.23, deployed was {described}" in reason.detail
    bench.check_schemas()
    bench.simulate("tp1-auto")  # deployed again
    assert bench.run().message == "2 cells: 2 ok (2 measured now)"


@pytest.mark.parametrize(
    "described", ["sglang 0.5.23", "sglang 0.5.23.post1", "sglang 0.5.20 git 6d7d2a1f0b11", "fork 7", None]
)
def test_a_build_that_may_be_the_deployed_one_is_measured(bench, described):
    bench.plan(SMALL_PLAN, workloads={"code": {"points": [8], "requests": 1}})
    bench.simulate("tp1-auto", engine_build=described)
    bench.run()
    assert statuses(bench) == {"tp1-auto.code.8.r1": "ok"}


def test_comparability_and_recorded_facts_do_not_make_a_cell_another_one(bench):
    bench.simulate("tp1-auto")
    bench.run()
    facts = {"driver_version": "580.1", "majors": {"nvidia-uvm": 511}, "power_limit_w": 450}
    bench.folder.environment.write_text(json.dumps({"node": "ct200", "host": "pve", "host_facts": facts}))
    assert bench.run().message.endswith("nothing to run")
    facts = {**facts, "gpu_model": "NVIDIA RTX PRO 6000 Blackwell", "gpu_count": 8}
    bench.folder.environment.write_text(json.dumps({"node": "ct200", "host": "pve", "host_facts": facts}))
    bench.run()
    found = bench.cell("tp1-auto.code.8.r1").fingerprint
    assert found.identity["gpu_count"] == 8
    assert found.comparability["driver_version"] == "580.1"
    assert found.comparability["cuda_version"] is None
    assert found.recorded["majors"] == {"nvidia-uvm": 511}


def test_sigterm_ends_the_cell_as_interrupted_and_stops_the_server(bench):
    bench.plan(SMALL_PLAN, workloads={"code": {"points": [8, 400], "requests": 2}})
    bench.simulate("tp1-auto", {"chunk_s": 0.01})
    process = bench.start_process()
    wait_for(
        lambda: (
            bench.folder.status.exists()
            and (bench.status()["current"] or {}).get("cell", "").endswith("400.r1")
        )
    )
    wait_for(lambda: bench.status()["current"]["phase"] == "measuring")
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 4, process.stdout.read()
    process.stdout.close()
    bench.check_schemas()
    assert bench.status()["state"] == "stopped"
    assert statuses(bench) == {"tp1-auto.code.8.r1": "ok", "tp1-auto.code.400.r1": "interrupted"}
    assert codes(bench, "tp1-auto.code.400.r1") == ["stopped"]
    assert bench.control.units["tp1-auto"].show()["processes"] == 0
    bench.simulate("tp1-auto")
    assert bench.run().message == "2 cells: 2 ok (1 measured now)"
    assert bench.cell("tp1-auto.code.400.r1").attempt == 1  # an interruption is no attempt


def test_a_killed_runner_leaves_nothing_that_the_next_one_believes(bench):
    bench.plan(SMALL_PLAN, workloads={"code": {"points": [8, 400], "requests": 2}})
    bench.simulate("tp1-auto", {"chunk_s": 0.01})
    process = bench.start_process()
    wait_for(
        lambda: (
            any(event.get("cell", "").endswith("400.r1") for event in bench.events())
            if bench.folder.journal.exists()
            else False
        )
    )
    process.kill()
    process.wait(15)
    process.stdout.close()
    assert bench.control.units["tp1-auto"].show()["processes"] == 1  # nobody stopped it
    before = bench.folder.cell("tp1-auto.code.8.r1").read_bytes()
    main(["plan", f"--dir={bench.folder.root}", f"--configurations={bench.configurations}"])
    bench.control.units["tp1-auto"].command[-1] = "{}"
    outcome = bench.run()
    assert outcome.message == "2 cells: 2 ok (1 measured now)"
    bench.check_schemas()
    assert bench.folder.cell("tp1-auto.code.8.r1").read_bytes() == before
    ended = [(event["cell"], event["status"]) for event in events(bench, "cell_ended")]
    assert ("tp1-auto.code.400.r1", "interrupted") in ended
    assert {"left_by": "an earlier run"} in [event.get("detail") for event in events(bench, "server_stopped")]
