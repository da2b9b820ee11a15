"""The switch between two sets on the node itself: frees, stages, reports, and refuses as the role would."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from .conftest import REPO, ROLE, Cache, model_files, open_to_others, stager, tree
from .small_tmpfs import mounted


@pytest.fixture
def shm(tmp_path):
    """A tmpfs of 4 MiB: room for two of the models."""
    with mounted(tmp_path / "small", 4) as folder:
        yield folder


class Node:
    """A node with a plan that the role has left."""

    def __init__(self, tmp_path, shm):
        self.shm, self.state, self.plan = shm, tmp_path / "run/switch.json", tmp_path / "plan.json"
        self.state.parent.mkdir()
        self.caches = {
            name: Cache(tmp_path / f"hub-{name}").add(model_files(size=500_000, seed=seed))
            for seed, name in enumerate("abc")
        }
        self.write(sets=[["a"], ["a", "b"], ["c"]])

    def arguments(self, name):
        source = f"hf_cache={self.caches[name].path}"
        return ["--name", name, "--root", str(self.shm), "--repo", REPO, "--source", source]

    def write(self, sets, **fields):
        plan = {
            "schema_version": 1,
            "root": str(self.shm),
            "reserve_bytes": 0,
            "user": "",
            "allow": {"remove": False, "grow": False, "switch": True},
            "sets": sets,
            "models": {name: {"arguments": self.arguments(name)} for name in self.caches},
            **fields,
        }
        self.plan.write_text(json.dumps(plan))

    def switch(self, number):
        return stager("switch", "--plan", self.plan, "--set", number, "--state", self.state)

    def result(self):
        return json.loads(self.state.read_text())

    def names(self):
        return sorted(path.name for path in self.shm.iterdir() if path.is_dir() and path.name[0] != ".")


@pytest.fixture
def node(tmp_path, shm):
    return Node(tmp_path, shm)


def test_it_stages_what_the_set_needs_and_makes_room_for_the_next(node):
    first, then = node.switch(0), node.names()
    second, result = node.switch(2), node.result()

    assert (first.returncode, second.returncode) == (0, 0)
    assert then == ["a", "b"], "the whole round, as it fits"
    assert node.names() == ["b", "c"], "one of them was enough"
    assert "removed: a (1.5 MB" in second.stdout
    assert "c: 1.5 MB from the HF cache" in second.stdout
    assert (result["state"], result["set"], result["models"]) == ("done", 2, ["c"])
    assert result["paths"] == {"c": f"{node.shm}/c"}
    assert (result["removed"], result["error"]) == (["a"], None)
    assert result["freed_bytes"] > 1_500_000
    assert result["summary"] == second.stdout.strip()


def test_a_set_that_is_there_costs_nothing_and_changes_nothing(node):
    node.switch(1)
    before = tree(node.shm)

    again = node.switch(1)

    assert again.stdout.count("already in") == 2
    assert tree(node.shm) == before


def test_there_and_back(node):
    for number, wanted in ((0, {"a"}), (2, {"c"}), (1, {"a", "b"})):
        assert node.switch(number).returncode == 0
        assert wanted <= set(node.names())


def test_the_engine_that_still_reads_is_named_and_nothing_is_removed(node):
    node.switch(1)
    code = "import sys; f = [open(p) for p in sys.argv[1:]]; print(flush=True); sys.stdin.read()"
    paths = [next((node.shm / name).glob("*.safetensors")) for name in "ab"]
    engine = subprocess.Popen(
        [sys.executable, "-c", code, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    engine.stdout.readline()
    refused = node.switch(2)
    engine.communicate()

    assert refused.returncode == 4
    assert f"a is in use by pid {engine.pid}" in refused.stderr
    assert node.names() == ["a", "b"]
    assert node.result()["state"] == "failed"
    assert node.result()["error"]["code"] == "no_room"
    assert node.switch(2).returncode == 0


def test_a_source_that_is_gone_is_a_failure_before_anything_is_removed(node):
    node.switch(1)
    (node.caches["c"].path / "models--lab--tiny").rename(node.caches["c"].path / "away")

    done = node.switch(2)

    assert done.returncode == 3
    assert node.result()["error"]["code"] == "no_source"
    assert node.names() == ["a", "b"]


def test_what_nobody_asks_for_now_may_have_no_source(node):
    node.switch(1)
    (node.caches["c"].path / "models--lab--tiny").rename(node.caches["c"].path / "away")

    done = node.switch(0)

    assert done.returncode == 0, done.stderr
    assert node.result()["state"] == "done"
    assert node.names() == ["a", "b"]


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (7, {}, "the plan has the sets 0 to 2, there is no 7"),
        (0, {"schema_version": 2}, "has schema version 2, this program reads 1"),
    ],
    ids=["set", "version"],
)
def test_what_makes_no_sense_is_refused(node, number, change, said):
    node.write(sets=[["a"], ["b"], ["c"]], **change)

    done = node.switch(number)

    assert done.returncode == 2
    assert said in done.stderr


def test_a_stop_is_said_and_the_next_switch_goes_on(node):
    command = [sys.executable, "-m", "model_stager", "switch", "--plan", node.plan, "--set", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROLE / "files")}
    process = subprocess.Popen(
        [*command, "--state", node.state], env=environment, stderr=subprocess.PIPE, text=True
    )
    while not node.state.exists():
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]

    assert process.returncode == 143
    assert "stopped; verified parts stay for the next run" in said
    assert (node.result()["state"], node.result()["error"]["code"]) == ("failed", "stopped")
    assert node.switch(0).returncode == 0
    assert node.names() == ["a", "b"]


def test_the_stager_runs_as_its_user(node):
    """Root switches; what it stages belongs to the user who stages, as from the role."""
    if os.geteuid() != 0:
        pytest.skip("only root can start it as another user")
    open_to_others(node.shm.parent)
    node.write(sets=[["a"]], user="nobody")

    done = node.switch(0)

    assert done.returncode == 0, done.stderr
    assert (node.shm / "a").stat().st_uid == 65534
    assert (node.shm / "a.proof.json").stat().st_uid == 65534
