"""A node whose memory holds two of three models: what waits takes its place by a unit, without Ansible."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from lab_room import Room

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
SHM, DISK = "/mnt/shm", "/srv/models"
ENGINE = "systemd-run -q --unit=inference-trial -p User=nobody sh -c {script}"


class Node:
    """ct200 with three models on its disk and a tmpfs for two of them."""

    def __init__(self, room: Room, folder: Path) -> None:
        self.room, self.on, self.folder = room, room.on, folder
        sources = {name: [{"kind": "directory", "path": f"{DISK}/{name}"}] for name in ("a", "b", "c")}
        self.wanted = {
            "results_dir": str(folder),
            "model_stage_models": [{"name": name, "sources": each} for name, each in sources.items()],
            "model_stage_sets": [["a"], ["a", "b"], ["c"]],
            "model_stage_root": SHM,
            "model_stage_switch_allowed": True,
        }

    def stage(self, *, status: int = 0, check: bool = False, **changed: object) -> str:
        """What it said, as one line."""
        path = self.folder / "wanted.json"
        path.write_text(json.dumps({**self.wanted, **changed}))
        command = f"env LC_ALL=C.UTF-8 NO_COLOR=1 RECOVERY_REPORT= {ANSIBLE} -i inventory/lab --limit ct200"
        command += f" playbooks/stage.yml -e @{path}{' --check' if check else ''} 2>&1"
        return " ".join(self.room(command, status=status).split())

    def switch(self, number: int) -> tuple[str, dict]:
        """The exit code of the unit's program, and its state file."""
        unit = f"model-stage-switch@{number}"
        show = f"systemctl show --property ExecMainStatus --value {unit}"
        ended = self.on("ct200", f"systemctl start {unit} 2>/dev/null || true; {show}")
        return ended, json.loads(self.on("ct200", "cat /run/model-stage/switch.json"))

    def there(self) -> str:
        return self.on("ct200", f"cd {SHM} && ls -d */ | tr -d '/\\n'")


@pytest.fixture(scope="module")
def node(room, tmp_path_factory):
    room.lab("up --fresh")
    node = Node(room, tmp_path_factory.mktemp("switch"))
    node.on("ct200", f"mkdir -p {SHM}; mount -t tmpfs -o size=4m,mode=1777,nosuid,nodev tmpfs {SHM}")
    # Its own program makes the manifests: a run that stages nothing brings it.
    for name in "abc":
        node.on("ct200", f"mkdir -p {DISK}/{name}; head -c 1500000 /dev/urandom > {DISK}/{name}/w.bin")
    node.stage(model_stage_models=[], model_stage_sets=[])
    program = "cd /opt/recover-and-bench/model-stager/current; python3 -m model_stager manifest create --from"
    for name in "abc":
        node.on("ct200", f"{program} {DISK}/{name}")
    return node


def test_what_does_not_fit_beside_the_rest_is_announced_and_the_next_run_changes_nothing(node):
    announced = f"c: 1.6 MB do not fit beside a (1.6 MB), b (1.6 MB) in {SHM}; it takes its place when"

    predicted, first, second = node.stage(check=True), node.stage(), node.stage()

    for said in (predicted, first, second):
        assert announced in said
    assert "changed nothing" in second
    assert node.there() == "ab"


def test_the_unit_makes_the_switch(node):
    ended, state = node.switch(2)

    assert ended == "0"
    assert (state["state"], state["models"], state["removed"]) == ("done", ["c"], ["a"])
    assert node.there() == "bc"
    owner = node.on("ct200", f"stat -c %U {SHM}/c {SHM}/c/w.bin {SHM}/c.proof.json | uniq")
    assert owner == "model-stager", "root does not stage"
    assert "changed nothing" in node.stage(), "the campaign may be in its second half"


def test_an_engine_that_reads_is_named_by_its_unit_and_keeps_its_model(node):
    script = shlex.quote(f"exec 3<{SHM}/b/w.bin 4<{SHM}/c/w.bin; exec sleep 600")
    node.on("ct200", f"{ENGINE.format(script=script)}; sleep 1")

    ended, state = node.switch(0)
    still = node.there()
    node.on("ct200", "systemctl stop inference-trial")
    later, _ = node.switch(0)

    assert ended == "4"
    assert state["error"]["code"] == "no_room"
    assert "sleep 600, inference-trial.service)" in state["error"]["message"]
    assert still == "bc"
    assert (later, "a" in node.there()) == ("0", True)


def test_where_it_may_grow_nothing_has_to_wait(node):
    predicted, first, second = (
        node.stage(check=True, model_stage_grow_allowed=True),
        node.stage(model_stage_grow_allowed=True),
        node.stage(model_stage_grow_allowed=True),
    )

    assert f"{SHM} would be grown from 4.2 MB to 5." in predicted
    assert f"{SHM} grown from 4.2 MB to 5." in first
    assert "until the next reboot" in first
    assert "changed nothing" in second
    assert node.there() == "abc"
    assert "rw,nosuid,nodev" in node.on("ct200", f"grep {SHM} /proc/self/mounts")
    assert node.on("ct200", "ls /etc/systemd/system | grep -c model-stage-switch || true") == "0"
