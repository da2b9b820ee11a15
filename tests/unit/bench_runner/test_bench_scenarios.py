"""Every scenario of the simulator: what the lifecycle, the checks and the runner say of it."""

import json
import re
import sys

import pytest
from bench_runner import runner
from bench_runner.server import cleanliness
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
    monkeypatch.setattr(cleanliness, "_PORT_FREE_S", 0.3)
    monkeypatch.setattr(runner, "GpuWatch", lambda: GpuWatch(freed_s=0.1))


@pytest.mark.parametrize("name", SCENARIOS)
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
