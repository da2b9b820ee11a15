"""Real systemd: what serves on a node is down while a campaign runs, and up again whatever ended it."""

import shlex
import time
from pathlib import Path

import ansible.module_utils
import pytest

UTILS = str(Path(__file__).parents[3] / "roles/bench_run/module_utils")
if UTILS not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(UTILS)

from ansible.module_utils.bench_run import unit  # noqa: E402 - found only once the folder is named

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

# A runner that only lasts: what it measures is others' business.
PREPARE = """
file=/etc/systemd/system/qwen.service
printf '[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n' > $file
printf '#!/bin/sh\\nexec sleep 300\\n' > /usr/local/bin/runner && chmod 755 /usr/local/bin/runner
mkdir -p /var/lib/bench
getent passwd bench || useradd --system bench
systemctl daemon-reload && systemctl enable --now qwen.service
"""
WANTED = {
    "plan": {"name": "small", "configurations": []},
    "campaign": "small",
    "root": "/var/lib/bench",
    "configurations_dir": "/etc/inference-server/configurations",
    "control_socket": "/run/inference-control.sock",
    "owner": "bench",
    "group": "bench",
    "python": "/usr/local/bin/runner",
    "retry": False,
    "hardened": True,
    "stopped": ["qwen.service"],
}
UNIT = "bench-run-small.service"


@pytest.fixture(scope="module")
def node(room):
    room.lab("up --fresh")
    room.on("ct200", PREPARE)
    return room


def state(node, name):
    return node.on("ct200", f"systemctl is-active {name} || true").splitlines()[-1]


def serves_again(node):
    until = time.monotonic() + 10
    while state(node, "qwen.service") != "active" and time.monotonic() < until:
        time.sleep(0.2)
    return state(node, "qwen.service") == "active"


@pytest.mark.parametrize(
    "end", ["systemctl kill --kill-whom=main -s KILL", "systemctl stop"], ids=["killed", "stopped"]
)
def test_it_serves_again_after_a_campaign_that_was(node, end):
    assert serves_again(node)
    node.on("ct200", shlex.join(unit.start_command(WANTED)))
    assert (state(node, "qwen.service"), state(node, UNIT)) == ("inactive", "active")
    assert "bench" in node.on("ct200", f"ps -o user= -p $(systemctl show -P MainPID {UNIT})")
    node.on("ct200", f"{end} {UNIT}")
    assert serves_again(node)
    assert state(node, UNIT) != "active"


def test_it_serves_again_after_a_campaign_that_could_not_start(node):
    node.on("ct200", shlex.join(unit.start_command({**WANTED, "python": "/no/such/runner"})) + " || true")
    assert serves_again(node)


def test_after_a_reboot_in_the_middle_systemd_starts_it_and_not_the_campaign(node):
    node.on("ct200", shlex.join(unit.start_command(WANTED)))
    node.on("pve", "pct reboot 200")
    node.wait_for("ct200")
    assert serves_again(node)
    assert state(node, UNIT) == "inactive"
