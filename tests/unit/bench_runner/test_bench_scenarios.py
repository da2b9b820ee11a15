"""Every scenario of the simulator: what the lifecycle, the checks and the runner say of it."""

import importlib.util
import json
import re
import sys
import time

import pytest
from bench_runner import runner
from bench_runner.server import cleanliness, lifecycle
from bench_runner.server.gpus import GpuWatch

from tests.sim.control import Ways
from tests.sim.nvidia_smi import new_state
from tests.sim.scenarios import SCENARIOS
from tests.unit.bench_runner.campaign_words import statuses
from tests.unit.bench_runner.conftest import ROOT, SMALL_PLAN, free_port

BROKEN, GOOD = "tp1-broken", "tp1-next"
PLAN = {
    **SMALL_PLAN,
    "baseline": BROKEN,
    "workloads": {"code": {"points": [20, 40], "requests": 2}},
    "limits": {"server_ready_s": 10, "cell_s": 15, "stall_s": 0.6},
}


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """One GPU that nvidia-smi shows: its file, which the stand-in for systemd changes with its servers."""
    state = tmp_path / "gpus.json"
    state.write_text(json.dumps(new_state(1)))
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/sim/nvidia_smi.py "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    monkeypatch.setenv("NVIDIA_SMI_STATE", str(state))
    return state


@pytest.fixture
def impatient(monkeypatch):
    """Waits for what never comes are short here."""
    monkeypatch.setattr(lifecycle, "_DYING_WITH_SIGN_S", 1.5)
    monkeypatch.setattr(cleanliness, "_PORT_FREE_S", 0.3)
    monkeypatch.setattr(runner, "GpuWatch", lambda: GpuWatch(freed_s=0.1))


ROWS = [pytest.param(name, marks=[pytest.mark.long] if row.long else []) for name, row in SCENARIOS.items()]


@pytest.mark.parametrize("name", ROWS)
def test_a_scenario_ends_as_the_table_says(bench, request, impatient, name):
    row = SCENARIOS[name]
    port = free_port()
    names = [BROKEN, *([GOOD] if row.next else [])]
    bench.plan({**PLAN, "configurations": names, **row.plan})
    bench.simulate(BROKEN, row.behaviour, port=port)
    bench.simulate(GOOD, port=port)
    ways = Ways(**row.unit)
    if ways.gpu_mib:
        ways.gpu_state = str(request.getfixturevalue("gpu"))
    bench.start_control().units[BROKEN].ways = ways
    outcome = bench.run()

    assert outcome.state == "finished", outcome.message
    bench.check_schemas()
    found = statuses(bench)
    points = bench.points(BROKEN)
    assert tuple(found[f"{BROKEN}.code.{point}.r1"] for point in points) == row.cells
    cells = [bench.cell(cell) for cell in found]
    assert all((cell.metrics is None) == (cell.status != "ok") for cell in cells)
    assert all(cell.metrics.output_tps > 0 for cell in cells if cell.metrics)
    bad = [bench.cell(f"{BROKEN}.code.{point}.r1") for point in points]
    first = next((cell for cell in bad if cell.status != "ok"), None)
    codes = tuple(reason.code for reason in first.reasons) if first else ()
    assert codes == row.codes
    if first:
        assert re.search(row.says, first.reasons[0].detail), first.reasons[0].detail
        assert (first.evidence or {}).get("signature") == row.signature
    if row.next:
        assert tuple(found[f"{GOOD}.code.{point}.r1"] for point in points) == row.next
        said = "; ".join(f"{each.code}: {each.detail}" for each in bench.cell(f"{GOOD}.code.20.r1").reasons)
        assert re.search(row.next_says, said), said
    assert not [unit for unit in bench.control.units.values() if unit.show()["processes"]]


def test_gpu_memory_that_is_not_ours_stops_the_run_before_anything_is_started(bench, gpu, impatient):
    state = json.loads(gpu.read_text())
    state["gpus"][0]["memory.used"] = 40000
    state["apps"] = [
        {"gpu_uuid": state["gpus"][0]["uuid"], "pid": 4242, "process_name": "ollama", "used_memory": 39996}
    ]
    gpu.write_text(json.dumps(state))
    bench.plan({**PLAN, "configurations": [BROKEN]})
    bench.simulate(BROKEN)
    outcome = bench.run()
    assert outcome.state == "failed"
    assert "is not started: GPU 0 uses 40000 MiB" in outcome.message
    assert "held by pid 4242 (ollama, 39996 MiB); it would disturb every measurement" in outcome.message
    assert ("start", BROKEN) not in bench.control.asked


def test_gpus_that_do_not_reach_each_other_fail_the_configuration_before_it_starts(
    bench, gpu, impatient, tmp_path
):
    """The engine's Python says what NCCL would say; the next configuration needs one GPU and goes on."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"failed": "ncclSystemError"}\'\nexit 1\n')
    python.chmod(0o755)
    bench.plan({**PLAN, "configurations": [BROKEN, GOOD]})
    bench.simulate(BROKEN, tensor_parallelism=2, python=str(python))
    bench.simulate(GOOD)
    assert bench.run().state == "finished"
    cell = bench.cell(f"{BROKEN}.code.20.r1")
    assert (cell.status, cell.reasons[0].code) == ("failed", "gpu_peers_fail")
    assert "an all-reduce over the GPUs failed (exit 1): ncclSystemError" in cell.reasons[0].detail
    assert statuses(bench)[f"{GOOD}.code.40.r1"] == "ok"
    (event,) = [each for each in bench.events() if each["event"] == "server_starting"]
    looked = event["detail"]["preflight"]
    assert looked["gpu_memory_mib"] == {"0": 4}
    assert looked["gpu_peers"] == {
        "outcome": "skipped",
        "sentence": "not checked: one GPU needs no other",
        "detail": {},
    }


def test_a_loading_server_says_how_far_it_is_in_the_status_and_to_ansible(bench):
    path = ROOT / "roles/bench_run/module_utils/bench_run/campaign_files.py"
    spec = importlib.util.spec_from_file_location("campaign_files", path)
    campaign_files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(campaign_files)
    bench.plan({**PLAN, "configurations": [BROKEN]})
    bench.simulate(BROKEN, {"load_s": 2.5})
    process = bench.start_process()
    heard = []
    while process.poll() is None:
        if bench.folder.status.exists():
            heard.append(campaign_files.progress(bench.status()))
        time.sleep(0.05)
    process.stdout.close()
    loading = [line for line in heard if "loading weights" in line]
    assert re.search(r"server starting, \d+ s, loading weights: \d+ % \(\d of 5 shards\)", loading[-1])
    assert bench.status()["counts"] == {"ok": 2}
