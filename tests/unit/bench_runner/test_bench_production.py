"""What serves on a node is stopped for a campaign only when allowed, and serves again whatever ended it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import ansible.module_utils
import pytest

from tests.unit.bench_runner.conftest import ROOT, SMALL_PLAN
from tests.unit.bench_runner.test_bench_run_modules import Node
from tests.unit.bench_runner.test_bench_run_modules import node as _node

if str(ROOT / "roles/bench_run/module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(ROOT / "roles/bench_run/module_utils"))

from ansible.module_utils.bench_run import production, unit

node = _node
PRODUCTION = {"production_units": ["qwen"], "stop_production_allowed": True}


class Service:
    """A production service under the stand-in for systemd."""

    def __init__(self, node: Node) -> None:
        self.folder = node.bin_dir
        self.systemctl = node.bin_dir / "systemctl"
        (self.folder / "qwen.service.exec").write_text("/bin/sleep 300\nenabled\n")

    def pid(self):
        try:
            pid = int((self.folder / "qwen.service.pid").read_text())
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return None
        return None if state in "ZX" else pid

    def does(self, verb):
        subprocess.run([self.systemctl, verb, "--", "qwen.service"], check=True)

    def serves(self, within_s=10):
        until = time.monotonic() + within_s
        while self.pid() is None and time.monotonic() < until:
            time.sleep(0.05)
        return self.pid() is not None


@pytest.fixture
def service(node):
    made = Service(node)
    made.does("start")
    yield made
    if made.pid():
        os.kill(made.pid(), signal.SIGKILL)


def test_it_is_refused_with_the_variables_name_and_left_alone(node, service):
    pid = service.pid()
    refused = node.start(production_units=["qwen.service"])
    assert refused["failed"]
    assert "ct200: campaign small: qwen.service serves on this node" in refused["msg"]
    assert "-e bench_run_stop_production_allowed=true" in refused["msg"]
    assert service.pid() == pid
    assert not node.bench.folder.root.exists()


def test_it_is_stopped_for_the_campaign_and_serves_again_after_it(node, service):
    predicted = node.start(check_mode=True, **PRODUCTION)
    assert predicted["summary"].endswith("; would stop qwen.service for it, and start it again")
    assert service.pid()

    started = node.start(**PRODUCTION)
    assert started["production"] == ["qwen.service"]
    assert service.pid() is None
    attached = node.start(**PRODUCTION)
    assert (attached["attached"], attached["production"]) == (True, ["qwen.service"])
    ended = node.follow(started, production=started["production"])
    assert ended["summary"] == "2 cells: 2 ok (2 measured now); qwen.service started again"
    assert service.pid()

    pid = service.pid()
    again = node.start(**PRODUCTION)  # nothing is left to measure: nothing is stopped
    assert (again["follow"], again["production"], service.pid()) == (False, [], pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_it_serves_again_after_a_runner_that_was(node, service, number):
    node.bench.simulate("tp1-auto", {"chunk_s": 0.1})
    node.start(**PRODUCTION)
    assert service.pid() is None
    os.kill(int((node.bin_dir / "bench-run-small.service.pid").read_text()), number)
    assert service.serves()


def test_it_serves_again_after_a_campaign_that_could_not_go_on(node, service):
    node.bench.control.units["tp1-auto"].start()
    started = node.start(**PRODUCTION)
    ended = node.follow(started, production=started["production"])
    assert ended["failed"]
    assert "inference-tp1-auto.service is running" in ended["msg"]
    assert service.serves()


def test_a_service_that_does_not_come_back_is_said(node, service, monkeypatch):
    started = node.start(**PRODUCTION)
    (node.bin_dir / "qwen.service.exec").write_text("/bin/true\n")
    monkeypatch.setattr("ansible.module_utils.bench_run.production.UP", ("active",))
    ended = node.follow(started, production=started["production"])
    assert ended["failed"]
    assert (
        "has ended (2 cells: 2 ok (2 measured now)), but qwen.service, which it had stopped, did not"
        in ended["msg"]
    )


def test_what_is_down_is_neither_refused_nor_started(node, service):
    service.does("stop")
    started = node.start(production_units=["qwen"])
    assert started["production"] == []
    node.follow(started)
    assert service.pid() is None


def test_a_name_that_systemd_does_not_know_is_refused(node, service):
    assert "systemd knows no qwn.service here" in node.start(production_units=["qwn"])["msg"]
    assert (
        "'qwen; reboot.service' is no unit's name"
        in node.start(production_units=["qwen; reboot.service"])["msg"]
    )


def test_a_unit_without_a_file_is_not_stopped_as_nobody_could_start_it_again(node, service):
    """What systemd-run made is gone when it has ended."""
    stand_in = node.bin_dir / "systemctl"
    stand_in.write_text(stand_in.read_text().replace('"enabled" if file', '"transient" if file'))
    pid = service.pid()
    refused = node.start(**PRODUCTION)
    assert refused["failed"]
    assert "qwen.service is transient (systemd-run): stopped, it is gone" in refused["msg"]
    assert service.pid() == pid


def test_the_early_check_refuses_too_but_not_for_a_campaign_that_is_done(node, service):
    arguments = {
        "units": ["qwen"],
        "allowed": False,
        "node": "ct200",
        "campaign": "small",
        "root": str(node.bench.folder.root.parent),
    }
    refused = node.call("bench_run_production", arguments)
    assert refused["msg"].startswith("ct200: qwen.service serves on this node")
    assert node.call("bench_run_production", {**arguments, "allowed": True})["serving"] == ["qwen.service"]
    started = node.start(**PRODUCTION)
    node.follow(started, production=started["production"])
    assert node.call("bench_run_production", arguments)["serving"] == ["qwen.service"]


def test_the_campaigns_unit_does_both_as_root():
    wanted = {
        "plan": SMALL_PLAN,
        "campaign": "small",
        "root": "/var/lib/bench",
        "configurations_dir": "/etc/inference-server/configurations",
        "control_socket": "/run/inference-control.sock",
        "python": "/opt/python",
        "owner": "bench",
        "group": "bench",
        "retry": False,
        "hardened": True,
    }
    command = unit.start_command({**wanted, "stopped": ["qwen.service", "kimi.service"]})
    assert "--property=ExecStartPre=+/usr/bin/systemctl stop -- qwen.service kimi.service" in command
    assert (
        "--property=ExecStopPost=+/usr/bin/systemctl start --no-block -- qwen.service kimi.service" in command
    )
    assert not any("Exec" in word for word in unit.start_command(wanted))


def test_a_unit_that_a_reboot_would_leave_down_is_warned_of():
    assert production.warning("qwen.service", {"UnitFileState": "enabled"}) is None
    assert "is not enabled: after a reboot in the middle" in str(
        production.warning("qwen.service", {"UnitFileState": "disabled"})
    )


def test_quick_and_deadline_reach_the_runner(node):
    plan = {**SMALL_PLAN, "workloads": {"code": {"points": [8, 16], "requests": 1}}}
    assert "--deadline: found 'soon', needed a duration" in node.start(plan, deadline="soon")["msg"]
    started = node.start(plan, quick=True, deadline="8h")
    ended = node.follow(started)
    assert ended["summary"] == "2 cells: 1 ok, 1 pending (not in quick) (1 measured now)"
    assert not ended.get("failed")
    again = node.start(plan, quick=True)
    assert again["summary"] == "2 cells: 1 kept, 1 waiting, nothing to run"


def test_a_plan_for_other_nodes_measures_nothing_here(node):
    elsewhere = node.start({**SMALL_PLAN, "nodes": ["ct201"]})
    assert (elsewhere["changed"], elsewhere["follow"]) == (False, False)
    assert elsewhere["summary"] == "small is for ct201: nothing to measure here"
