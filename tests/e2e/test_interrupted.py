"""Whatever cuts a benchmark short, no finished cell is lost and none is false."""

import os
import signal

import pytest
from story import NODE, Operator, lab, on, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

PLAN = "lab-small"


def ok_cells():
    """Finished cells on the node: name -> checksum of its file."""
    cells = f"/var/lib/bench/{PLAN}/cells"
    lines = on(NODE, f'cd {cells} 2>/dev/null && grep -lE \'"status": ?"ok"\' *.json | xargs -r sha256sum')
    return {name: digest for digest, name in (line.split() for line in lines.splitlines())}


@pytest.fixture(scope="module")
def fresh(_room, tmp_path_factory):
    """A lab of its own, repaired but not measured."""
    lab("up", "--fresh")
    return Operator(tmp_path_factory.mktemp("interrupted") / "results")


def test_ctrl_c_then_power_cut_then_a_whole_run(fresh):
    run = fresh.start()
    wait_until(lambda: len(ok_cells()) >= 2, within_s=240, what="two cells measured")
    os.killpg(run.pid, signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode != 0
    after_ctrl_c = ok_cells()
    assert len(after_ctrl_c) >= 2

    run = fresh.start()
    wait_until(lambda: len(ok_cells()) >= len(after_ctrl_c) + 3, within_s=120, what="three more cells")
    before_cut = ok_cells()
    lab("power-cut", "pve")
    output, _ = run.communicate(timeout=120)
    assert run.returncode != 0, output

    done = fresh.run()

    assert done.status == 0
    now = ok_cells()
    assert {name: now.get(name) for name in after_ctrl_c} == after_ctrl_c
    assert {name: now.get(name) for name in before_cut} == before_cut
    assert {name: cell["reasons"] for name, cell in fresh.cells().items() if cell["status"] != "ok"} == {}
