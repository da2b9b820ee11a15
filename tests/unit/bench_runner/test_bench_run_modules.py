"""The role's modules on a real runner, with a stand-in for systemd: start, follow, attach, refuse."""

import getpass
import grp
import importlib.util
import json
import os
import sys
import time

import ansible.module_utils
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from tests.unit.bench_runner.conftest import PACKAGE, ROOT, SMALL_PLAN

ROLE = ROOT / "roles/bench_run"
if str(ROLE / "module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(ROLE / "module_utils"))


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROLE / f"library/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Node:
    """A node whose systemd is ours, and the two modules as a play would call them."""

    def __init__(self, bench, capsys, bin_dir):
        self.bench = bench
        self.capsys = capsys
        self.bin_dir = bin_dir
        self.python = bin_dir / "python"
        # As in the venv that node_python makes: the runner is importable under -I.
        self.python.write_text(
            f"#!{sys.executable}\nimport os, runpy, sys\n"
            f"sys.path.insert(0, {str(PACKAGE)!r})\n"
            "sys.argv = sys.argv[sys.argv.index('-m') + 1 :]\n"
            "runpy.run_module('bench_runner', run_name='__main__')\n"
        )
        self.python.chmod(0o755)
        for name in ("systemd-run", "systemctl", "journalctl"):
            path = bin_dir / name
            path.write_text(f"#!{sys.executable}\n" + (ROOT / "tests/sim/systemd_stand_in.py").read_text())
            path.chmod(0o755)

    def call(self, name, arguments, *, check_mode=False):
        module = load(name)
        self.capsys.readouterr()
        with patch_module_args({**arguments, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
            module.main()
        return json.loads(self.capsys.readouterr().out.splitlines()[-1])

    def start(self, plan=None, *, check_mode=False, **changes):
        arguments = {
            "plan": plan or SMALL_PLAN,
            "environment": {"node": "ct200", "host": "pve", "host_facts": {"gpu_count": 0}},
            "root": str(self.bench.folder.root.parent),
            "owner": getpass.getuser(),
            "group": grp.getgrgid(os.getgid()).gr_name,
            "python": str(self.python),
            "configurations_dir": str(self.bench.configurations),
            "control_socket": str(self.bench.socket_path),
            **changes,
        }
        return self.call("bench_run_campaign", arguments, check_mode=check_mode)

    def follow(self, started, **changes):
        arguments = {
            "campaign": started["campaign"],
            "root": str(self.bench.folder.root.parent),
            "since_seq": started["since_seq"],
            "run_before": started["run_before"],
            "wait_s": 0.5,
            **changes,
        }
        seen = []
        for _ in range(60):
            result = self.call("bench_run_follow", arguments)
            seen.append(result.get("progress"))
            if result.get("finished"):
                return {**result, "seen": [line for line in seen if line]}
        raise AssertionError(f"never finished: {seen}")


@pytest.fixture
def node(bench, capsys, tmp_path, monkeypatch):
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for name in ("plan.yml", "environment.json"):
        (bench.folder.root / name).unlink()
    bench.folder.root.rmdir()
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")
    bench.simulate("tp1-auto")
    bench.start_control()
    return Node(bench, capsys, bin_dir)


def test_check_mode_predicts_the_real_run_agrees_and_a_second_run_changes_nothing(node):
    predicted = node.start(check_mode=True)
    assert predicted["changed"]
    assert not predicted["follow"]
    assert predicted["summary"] == (
        "2 cells: would measure 2, how long is not known: nothing like it was measured on this node; 0 kept"
    )
    assert not node.bench.folder.root.exists()

    started = node.start()
    assert (started["changed"], started["follow"], started["counts"]) == (True, True, {"run": 2})
    assert {each["before_header"]: each["after"] for each in started["diff"]} == {
        each["before_header"]: each["after"] for each in predicted["diff"]
    }
    ended = node.follow(started)
    assert ended["summary"] == "2 cells: 2 ok (2 measured now)"
    assert ended["changed"]
    assert ended["recovery"]["bench"]["counts"] == {"ok": 2}
    assert ended["recovery"]["bench"]["measured"] == 2
    assert 0 < ended["waited_s"]["measure"] < 5
    assert 0 < ended["waited_s"]["engine_load"] < 10

    before = {path: path.read_bytes() for path in node.bench.folder.root.rglob("*") if path.is_file()}
    for check_mode in (True, False):
        again = node.start(check_mode=check_mode)
        assert (again["changed"], again["follow"], again["diff"]) == (False, False, [])
        assert again["summary"] == "2 cells: all kept from before, nothing to run"
    assert before == {path: path.read_bytes() for path in node.bench.folder.root.rglob("*") if path.is_file()}


def test_the_unit_is_hardened_and_may_write_its_folder_only(node):
    node.follow(node.start())
    command = (node.bin_dir / "bench-run-small.service.command").read_text().splitlines()
    assert "--collect" in command
    for wanted in ("NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "Type=exec"):
        assert f"--property={wanted}" in command
    assert f"--property=ReadWritePaths={node.bench.folder.root.parent}" in command
    assert f"--property=User={getpass.getuser()}" in command


def test_progress_says_cell_phase_seconds_and_requests(node):
    node.bench.simulate("tp1-auto", {"chunk_s": 0.02})
    plan = {**SMALL_PLAN, "workloads": {"code": {"points": [60], "requests": 1}}}
    ended = node.follow(node.start(plan), wait_s=0.3)
    assert any(
        line.startswith("cell 1/1 tp1-auto code/60: measuring, ") and line.endswith("done of 1 requests")
        for line in ended["seen"]
    ), ended["seen"]


def test_a_running_campaign_is_followed_not_started_twice(node):
    node.bench.simulate("tp1-auto", {"chunk_s": 0.02})
    first = node.start()
    elsewhere = {"node": "ct200", "host": "pve", "host_facts": {"gpu_count": 0, "uptime_s": 9}}
    second = node.start(environment=elsewhere)  # what is seen of the place differs at each look
    assert (second["attached"], second["follow"], second["changed"]) == (True, True, False)
    refused = node.start({**SMALL_PLAN, "seed": 2})
    assert "campaign small is running with another plan.yml; wait for its end" in refused["msg"]
    ended = node.follow(second)
    assert ended["summary"] == "2 cells: 2 ok (2 measured now)"
    assert ended["changed"]
    assert node.follow(first)["finished"]
    again = node.start(environment=elsewhere)
    assert (again["changed"], again["diff"]) == (False, [])


def test_what_the_runner_refuses_is_refused_before_anything_is_written(node):
    wrong = node.start({**SMALL_PLAN, "configurations": ["tp1-auto", "tp1-ngram"]})
    assert wrong["failed"]
    assert "ct200: campaign small: plan.yml:7: configurations[1]: 'tp1-ngram' is not deployed" in wrong["msg"]
    (node.bench.configurations / "tp1-auto.json").write_text("{")
    assert "can't be read as a configuration's description" in node.start()["msg"]
    assert not node.bench.folder.root.exists()


def test_a_runner_that_cannot_go_on_fails_with_its_own_sentence(node):
    node.bench.control.units["tp1-auto"].start()
    ended = node.follow(node.start())
    assert ended["failed"]
    assert "inference-tp1-auto.service is running and this campaign did not start it" in ended["msg"]


def test_a_runner_that_is_killed_is_noticed_with_what_it_said_last(node):
    node.bench.simulate("tp1-auto", {"chunk_s": 0.1})
    started = node.start()
    pid = int((node.bin_dir / "bench-run-small.service.pid").read_text())
    time.sleep(0.8)
    os.kill(pid, 9)
    (node.bin_dir / "bench-run-small.service.log").write_text("Killed: out of memory\n")
    ended = node.follow(started)
    assert ended["failed"]
    assert "ended without a last word" in ended["msg"]
    assert "Killed: out of memory" in ended["msg"]
    node.bench.simulate("tp1-auto")
    node.bench.control.units["tp1-auto"].stop()
    assert node.follow(node.start())["summary"] == "2 cells: 2 ok (2 measured now)"


def test_cells_that_are_not_ok_are_named_and_fail_the_play_only_when_strict(node):
    node.bench.simulate(
        "tp1-auto", {"faults": [{"name": "early_stop", "min_output": 16, "max_output": 16, "after": 1}]}
    )
    started = node.start()
    ended = node.follow(started)
    assert not ended.get("failed")
    assert (
        ended["summary"] == "2 cells: 1 ok, 1 partial (2 measured now); tp1-auto code/16 partial (early_stop)"
    )
    strict = node.follow(started, strict=True)
    assert strict["failed"]
    assert "1 cells are not ok (bench_run_strict)" in strict["msg"]
    assert ended["recovery"]["bench"]["not_ok"][0]["cell"] == "tp1-auto.code.16.r1"


def test_a_rehearsal_before_the_first_deployment_says_what_it_cannot_know(node):
    node.python.unlink()
    predicted = node.start(check_mode=True)
    assert predicted["changed"]
    assert predicted["summary"] == (
        "would measure small (which cells are done is not known: the runner is not installed yet)"
    )


def test_the_pinned_packages_are_the_locks_own():
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in (ROLE / "files/requirements.txt").read_text().splitlines() if "==" in line]
    assert len(pins) == 9
    assert set(pins) <= set(lock)


def test_the_filter_says_what_the_runner_would_say():
    spec = importlib.util.spec_from_file_location("bench_run_plan", ROLE / "filter_plugins/bench_run_plan.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    problems = module.FilterModule().filters()["bench_run_plan_problems"]
    assert problems(SMALL_PLAN) == []
    assert problems({**SMALL_PLAN, "worklods": {}}) == [
        "plan: worklods: unknown key; did you mean 'workloads'?"
    ]
    assert problems(SMALL_PLAN, "") == problems(SMALL_PLAN, "06:30") == []
    [late] = problems(SMALL_PLAN, "soon")
    assert late.startswith("bench_run_deadline: found 'soon', needed a duration such as 90m")


def test_the_readmes_plan_is_a_right_one():
    text = (ROLE / "README.md").read_text()
    block = text.split("```yaml\n")[2].split("```")[0]
    spec = importlib.util.spec_from_file_location("bench_run_plan", ROLE / "filter_plugins/bench_run_plan.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.plan_problems(yaml.safe_load(block)["plan"]) == []
