"""Whatever cuts a benchmark short, no finished cell is lost and none is false."""

import os
import signal

import pytest
from story import Operator, lab, ok_cells, running, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


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
    # Ctrl-C ends the watching, not the work.
    assert running()

    run = fresh.start()
    wait_until(lambda: len(ok_cells()) >= len(after_ctrl_c) + 3, within_s=120, what="three more cells")
    assert running()
    before_cut = ok_cells()
    lab("power-cut", "pve")
    # The run may notice or may be late enough to find the node up again: only what comes of it counts.
    run.communicate(timeout=300)

    done = fresh.run()

    assert done.status == 0
    now = ok_cells()
    assert {name: now.get(name) for name in after_ctrl_c} == after_ctrl_c
    assert {name: now.get(name) for name in before_cut} == before_cut
    cells = fresh.cells()
    assert len(cells) == 30
    assert {name: cell["reasons"] for name, cell in cells.items() if cell["status"] != "ok"} == {}
    assert any(cell["attempt"] > 1 or name not in before_cut for name, cell in cells.items())
