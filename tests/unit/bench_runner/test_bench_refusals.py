"""What is not ours, not possible or not right is refused in one sentence."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from bench_runner.campaign import run
from bench_runner.cli import main
from bench_runner.errors import BenchError, BusyError, FolderError, PlanError
from bench_runner.files import only_runner

from tests.sim.sglang_shaped import Behaviour
from tests.unit.bench_runner.campaign_words import events, names, wait_for
from tests.unit.bench_runner.conftest import PACKAGE, SMALL_PLAN


def test_a_server_that_is_not_ours_is_not_touched(bench):
    bench.simulate("tp1-auto")
    bench.start_control().units["tp1-auto"].start()
    outcome = bench.run()
    assert outcome.state == "failed"
    assert "inference-tp1-auto.service is running and this campaign did not start it" in outcome.message
    assert "systemctl stop inference-tp1-auto.service" in outcome.message
    assert bench.control.units["tp1-auto"].show()["processes"] == 1
    assert bench.status()["state"] == "failed"


def test_a_server_started_by_hand_after_ours_was_killed_is_not_taken_for_ours(bench):
    bench.plan(SMALL_PLAN, workloads={"code": {"points": [400], "requests": 2}})
    bench.simulate("tp1-auto", {"chunk_s": 0.01})
    process = bench.start_process()
    wait_for(lambda: bench.folder.journal.exists() and events(bench, "cell_started"))
    process.kill()
    process.wait(15)
    process.stdout.close()
    unit = bench.control.units["tp1-auto"]
    unit.stop()
    unit.start()
    outcome = bench.run()
    assert (outcome.state, unit.show()["processes"]) == ("failed", 1)
    assert "this campaign did not start it" in outcome.message


def test_a_port_that_something_else_holds_stops_the_run_with_its_number(bench, simulator):
    bench.simulate("tp1-auto")
    port = simulator(Behaviour())
    path = bench.configurations / "tp1-auto.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "url": f"http://127.0.0.1:{port}"}))
    outcome = bench.run()
    assert outcome.state == "failed"
    assert f"port {port} of 127.0.0.1 is in use by something that is no inference unit" in outcome.message


def test_no_control_socket_is_one_clear_sentence(bench):
    bench.simulate("tp1-auto")
    outcome = run(bench.folder, bench.configurations, bench.root / "none.sock")
    assert outcome.state == "failed"
    assert "none.sock: No such file or directory; is inference-control.socket running" in outcome.message


def test_bad_input_is_refused_before_anything_is_written(bench, monkeypatch):
    with pytest.raises(PlanError, match="'tp1-auto' is not deployed; there is none"):
        bench.run()
    bench.simulate("tp1-auto")
    bench.plan(SMALL_PLAN, worklods={})
    with pytest.raises(PlanError, match="did you mean 'workloads'"):
        bench.run()
    bench.plan(SMALL_PLAN)
    bench.folder.environment.unlink()
    with pytest.raises(BenchError, match=r"environment.json: No such file"):
        bench.run()
    bench.folder.environment.write_text('{"node": "ct200", "host": "pve"}')
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(FolderError, match="0 MiB free"):
        bench.run()
    assert names(bench.folder.root) == ["environment.json", "plan.yml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as someone else")
def test_a_folder_of_another_user_is_refused_in_one_sentence(bench):
    bench.simulate("tp1-auto")
    bench.run()
    for path in (bench.root.parent.parent, bench.root.parent, bench.root):
        path.chmod(0o755)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench_runner",
            "run",
            f"--dir={bench.folder.root}",
            f"--configurations={bench.configurations}",
        ],
        env={"PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        user=65534,
        cwd="/",
        check=False,
    )
    assert done.returncode == 2
    assert "is not writable for uid 65534: Permission denied; give it to that user (chown)" in done.stderr
    assert done.stderr.count("\n") == 1


def test_two_runners_at_once_are_refused(bench):
    bench.simulate("tp1-auto")
    with only_runner(bench.folder.root.parent / ".runner.lock"), pytest.raises(BusyError):
        bench.run()


def test_plan_says_what_a_run_would_do_and_changes_nothing(bench, capsys):
    bench.simulate("tp1-auto")
    arguments = ["plan", f"--dir={bench.folder.root}", f"--configurations={bench.configurations}"]
    assert main(arguments) == 0
    assert (
        "2 cells: 2 to run; how long is not known: nothing like it was measured on this node"
        in capsys.readouterr().out
    )
    assert names(bench.folder.root) == ["environment.json", "plan.yml"]
    bench.run()
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"keep": 2}
    assert main(["status", f"--dir={bench.folder.root}"]) == 0
    assert "2 cells: 2 ok (2 measured now)" in capsys.readouterr().out
    bench.folder.status.write_text("{")
    assert main(["status", f"--dir={bench.folder.root}"]) == 2
    assert "status.json can't be read" in capsys.readouterr().err
