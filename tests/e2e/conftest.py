import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

sys.path.insert(0, str(Path(__file__).parents[2]))

from story import CU_INIT, HOST, NODE, Operator, lab, on

from tests.lab import paths


@pytest.fixture(scope="session")
def _room():
    """These tests are real only inside the lab's room: outside of it there is nothing to run against."""
    if not paths.ROOM_MARK.exists():
        pytest.fail("run these tests inside the lab: python -m tests.lab enter -- pytest -m lab tests/e2e")


@pytest.fixture(scope="session")
def operator(_room, tmp_path_factory):
    """An operator before a fresh lab: its host was rebooted, CUDA is broken, /dev/shm is empty."""
    lab("up", "--fresh")
    return Operator(tmp_path_factory.mktemp("operator") / "results")


@pytest.fixture(scope="session")
def first(operator):
    """The first run of the operator's command, and what the lab was like before it."""
    conf = on(HOST, "cat /etc/pve/lxc/200.conf")
    assert on(NODE, CU_INIT).strip() == "999"
    run = operator.run()
    run.conf_before = conf
    return run


@pytest.fixture(scope="session")
def healthy(first, operator):
    """The operator after a whole run: what follows only has to repair, and keeps its cells."""
    assert first.status == 0
    return operator
