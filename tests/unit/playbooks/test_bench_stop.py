"""Before a planned reboot campaigns are asked or told to stop. Real processes, a stand-in systemctl."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

ROOT = Path(__file__).resolve().parents[3]
SYSTEMCTL = '''\
#!/usr/bin/env python3
"""systemctl for units whose main process is named in <folder>/<unit>.pid."""
import os, signal, sys
from pathlib import Path
folder = Path(__file__).parent
def alive(path):
    try:
        return Path(f"/proc/{path.read_text()}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
verb, *words = sys.argv[1:]
if (folder / "broken").exists():
    sys.exit("Failed to connect to bus: No such file or directory")
if verb == "list-units":
    for path in sorted(folder.glob("bench-run-*.pid")):
        state = "active running" if alive(path) else "inactive dead"
        print(f"{path.stem} loaded {state} Benchmark campaign")
    sys.exit(0)
path = folder / (words[-1] + ".pid")
if not alive(path):
    sys.exit(f"Failed to {verb} unit {words[-1]}: Unit {words[-1]} not loaded.")
os.kill(int(path.read_text()), signal.SIGTERM if verb == "stop" else signal.SIGUSR1)
'''
RUNNER = """
import signal, sys, time
def after_cell(*_):
    time.sleep(float(sys.argv[1])); sys.exit(0)
signal.signal(signal.SIGUSR1, after_cell)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
print("ready", flush=True)
time.sleep(60)
"""


def load_module():
    path = ROOT / "playbooks/library/bench_stop.py"
    spec = importlib.util.spec_from_file_location("bench_stop_under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULE = load_module()


class Node:
    def __init__(self, folder, capsys):
        self.folder = folder
        self.processes = []
        self._capsys = capsys
        self.systemctl = folder / "systemctl"
        self.systemctl.write_text(SYSTEMCTL)
        self.systemctl.chmod(0o755)

    def start(self, name, *, cell_s=0.1, **status):
        """A campaign whose cell takes that long."""
        process = subprocess.Popen([sys.executable, "-c", RUNNER, str(cell_s)], stdout=subprocess.PIPE)
        self.processes.append(process)
        process.stdout.readline()
        (self.folder / f"bench-run-{name}.service.pid").write_text(str(process.pid))
        (self.folder / name).mkdir()
        (self.folder / name / "status.json").write_text(json.dumps(status))
        return process

    def call(self, *, check=False, **options):
        args = {"root": str(self.folder), "systemctl": str(self.systemctl), "wait_s": 3, **options}
        with patch_module_args({**args, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            MODULE.main()
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
def node(tmp_path, capsys):
    node = Node(tmp_path, capsys)
    yield node
    for process in node.processes:
        process.kill()
        process.communicate()


def measuring(**more):
    return {"state": "running", "current": {"position": 3, "total": 12, "phase": "measuring", **more}}


def test_a_node_without_a_campaign_has_nothing_to_stop(node):
    result = node.call()

    assert (result["changed"], result["finished"], result["summary"]) == (
        False,
        True,
        "no campaign is running",
    )


def test_a_campaign_that_has_ended_is_not_asked(node):
    node.start("old").kill()
    node.processes[0].wait()

    assert node.call()["summary"] == "no campaign is running"


def test_the_cell_may_end(node):
    process = node.start("lab-small", **measuring())
    result = node.call()

    assert process.wait(5) == 0
    assert (result["changed"], result["finished"]) == (True, True)
    assert result["waited_s"]["measure"] > 0
    assert result["summary"].startswith("campaign lab-small has ended (")


def test_told_to_stop_now_it_is_stopped(node):
    process = node.start("lab-small", cell_s=30, **measuring())
    result = node.call(now=True)

    assert process.wait(5) == 4
    assert result["finished"] is True


def test_a_long_cell_is_followed_and_shown(node):
    node.start("lab-small", cell_s=1.0, **measuring(remaining_s=40.4))
    asked = node.call(wait_s=0.1)
    followed = node.call(follow=asked["running"], since=asked["since"])

    assert (asked["running"], asked["finished"]) == (["lab-small"], False)
    assert asked["progress"] == (
        "campaign lab-small: cell 3 of 12 is measuring, about 40 s left, the last one before the stop"
    )
    assert (followed["changed"], followed["finished"]) == (False, True)
    assert followed["waited_s"]["measure"] >= 0.9


def test_the_last_word_is_the_campaigns_own(node):
    node.start("lab-small", state="stopped", message="12 cells: 3 ok (1 measured now), 9 pending")

    assert node.call()["summary"] == (
        "campaign lab-small has ended (stopped: 12 cells: 3 ok (1 measured now), 9 pending)"
    )


def test_check_mode_asks_nobody(node):
    process = node.start("lab-small", **measuring())
    result = node.call(check=True)

    assert process.poll() is None
    assert (result["changed"], result["finished"]) == (True, True)
    assert result["summary"] == "campaign lab-small would end after this cell (cell 3 of 12 is measuring)"


def test_a_cell_that_outlasts_the_limit_is_a_failure_that_says_what_to_do(node):
    node.start("lab-small", cell_s=30, **measuring())
    asked = node.call(wait_s=0.1)
    result = node.call(follow=asked["running"], since=asked["since"], wait_s=0.1, limit_s=0.1)

    assert result["failed"] is True
    assert "lab-small: cell 3 of 12 is measuring, and its cell has not ended" in result["msg"]
    assert "prepare_reboot_stop_now=true" in result["msg"]


def test_a_systemd_that_does_not_answer_is_named(node):
    (node.folder / "broken").touch()
    result = node.call()

    assert result["failed"] is True
    assert "Failed to connect to bus" in result["msg"]
