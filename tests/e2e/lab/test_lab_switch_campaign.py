"""Two models, and memory for one: a campaign measures both, as the node makes the switch by itself."""

import json
import sys
from pathlib import Path

import pytest
from lab_room import Room

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
SHM = "/mnt/shm"
CAMPAIGNS = "/var/lib/bench"
SERVED = {"engine": "llamacpp", "tensor_parallelism": 1, "context_tokens": 1024}
SOURCES = [{"kind": "hf_cache", "path": "/var/lib/models/hub"}]
MODEL = {"repo": "lab/tiny-qwen2", "revision": "main", "sources": SOURCES}
PLAN = {
    "schema_version": 1,
    "name": "turns",
    "baseline": "tp1-a",
    "configurations": ["tp1-a", "tp1-b"],
    "repeats": 2,
    "order": "rounds",
    "workloads": {"code": {"points": [16], "requests": 2, "prompt_tokens": 32}},
    "limits": {"server_ready_s": 60, "cell_s": 60, "stall_s": 20},
    "tolerance": {"client_ms": 5000},  # the client shares two processors with everything else
}
ANNOUNCED = f"tiny-b: 3.4 MB do not fit beside tiny-a (3.4 MB) in {SHM}; it takes its place when"


class Node:
    """ct200, whose memory holds one of the two."""

    def __init__(self, room: Room, folder: Path) -> None:
        self.room, self.on, self.folder = room, room.on, folder
        wanted = {
            "results_dir": str(folder / "results"),
            "models": {"tiny-a": MODEL, "tiny-b": MODEL},
            "configurations": {f"tp1-{each}": {**SERVED, "model": f"tiny-{each}"} for each in "ab"},
            "plans": {"turns": PLAN, "again": {**PLAN, "name": "again", "repeats": 1}},
            "plan_name": "turns",
            "model_stage_root": SHM,
            "model_stage_switch_allowed": True,
        }
        self.path = folder / "wanted.json"
        self.path.write_text(json.dumps(wanted))

    def play(self, *playbooks: str) -> str:
        """What they said, as one line."""
        command = f"env LC_ALL=C.UTF-8 NO_COLOR=1 RECOVERY_REPORT= {ANSIBLE} -i inventory/lab"
        command += f" -e @{self.path} {' '.join(playbooks)} 2>&1"
        return " ".join(self.room(command).split())

    def events(self, kind: str, campaign: str = "turns") -> list[dict]:
        lines = self.on("ct200", f"cat {CAMPAIGNS}/{campaign}/journal.jsonl").splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def there(self) -> str:
        return self.on("ct200", f"cd {SHM} && ls -d */ | tr -d '\\n'")


@pytest.fixture(scope="module")
def node(room, tmp_path_factory):
    room.lab("up --fresh")
    room.repair()
    room.on("ct200", f"mkdir -p {SHM}; mount -t tmpfs -o size=6m,mode=1777,nosuid,nodev tmpfs {SHM}")
    return Node(room, tmp_path_factory.mktemp("turns"))


def test_one_command_measures_both_and_says_that_they_take_turns(node):
    said = node.play("recover-and-bench.yml")

    assert said.count(ANNOUNCED) >= 2, "before anything is changed, and when it is staged"
    assert "4 cells: 4 ok (4 measured now); models switched for tp1-b: removed: tiny-a" in said
    ended = [(event["cell"], event["status"]) for event in node.events("cell_ended")]
    assert ended == [(f"tp1-{each}.code.16.r{repeat}", "ok") for each in "ab" for repeat in (1, 2)]
    staged = node.events("models_staged")
    assert [event["configuration"] for event in staged] == ["tp1-a", "tp1-b"] * (len(staged) // 2)
    assert [event["detail"]["removed"] for event in staged if event["detail"]["removed"]] == [["tiny-a"]]
    assert node.there() == "tiny-b/"


def test_another_run_changes_nothing_and_switches_nothing_back(node):
    said = node.play(*(f"playbooks/{stage}.yml" for stage in ("stage", "deploy", "bench")))

    assert "2 configurations: 2 unchanged" in said
    assert "4 cells: all kept from before, nothing to run" in said
    assert "changed nothing" in said
    assert node.there() == "tiny-b/"


def test_a_model_that_cannot_come_back_fails_its_configuration_alone_and_nothing_is_removed(node):
    node.on("ct200", "mv /var/lib/models/hub /var/lib/models/gone")

    said = node.play("playbooks/bench.yml", "-e plan_name=again")

    assert "2 cells: 1 ok, 1 failed (2 measured now); tp1-a code/16 failed (model_not_staged)" in said
    ended = {event["cell"]: event["reasons"] for event in node.events("cell_ended", "again")}
    assert ended["tp1-b.code.16.r1"] == []
    assert "tiny-a: no source can say what the model consists of" in ended["tp1-a.code.16.r1"][0]["detail"]
    assert node.there() == "tiny-b/"
