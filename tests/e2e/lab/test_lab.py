"""The lab: the story's first state, the repair by hand, true reboots, checked keys, more machines."""

import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def test_the_first_state_is_the_storys(fresh):
    """The GPU opens, nvidia-uvm is denied by the kernel, CUDA says 999, and the memory is empty."""
    assert fresh.probe() == {"uvm": "EPERM", "gpu": "opens", "cuInit": 999, "gpus": -1, "shm": []}
    assert "NVIDIA RTX PRO 6000 Blackwell" in fresh.on("ct200", "nvidia-smi -L")
    assert (
        fresh.on("ct200", "find -L /var/lib/models/hub/*/snapshots -name '*.gguf' -size +3M | wc -l") == "1"
    )


def test_a_rule_and_a_restart_repair_it(healthy):
    assert healthy.probe() == {"uvm": "opens", "gpu": "opens", "cuInit": 0, "gpus": 2, "shm": []}


def test_a_reboot_is_a_true_one(healthy):
    healthy.on("ct200", "echo gone > /dev/shm/x; echo kept > /root/x")
    before, major = healthy.on("pve", "cat /proc/sys/kernel/random/boot_id"), healthy.uvm_major()

    started = time.monotonic()
    healthy.lab("reboot-host pve --uvm-major new")
    seconds = time.monotonic() - started

    assert healthy.on("pve", "cat /proc/sys/kernel/random/boot_id") != before
    assert healthy.on("pve", "systemctl --failed --no-legend") == ""
    assert healthy.probe() == {"uvm": "EPERM", "gpu": "opens", "cuInit": 999, "gpus": -1, "shm": []}
    assert healthy.on("ct200", "cat /root/x") == "kept"
    assert healthy.uvm_major() != major
    assert seconds < 20


def test_a_power_cut_leaves_the_disks(healthy):
    healthy.on("ct200", "echo gone > /dev/shm/x; echo kept > /root/x")

    healthy.lab("power-cut pve --stay-off")
    assert "pve      10.77.0.10   stopped, silent" in healthy.lab("status")
    healthy.lab("up")

    assert healthy.on("ct200", "cat /root/x; ls /dev/shm") == "kept"
    assert healthy.probe()["cuInit"] == 0


def test_host_keys_are_checked(fresh):
    """Another machine with the node's address is refused."""
    folder = "/run/lab/ssh"
    fresh(f"ssh-keygen -q -t ed25519 -N '' -f {folder}/other")
    forge = f"while read -r names _; do echo $names $(cat {folder}/other.pub); done"
    fresh(f"{forge} < {folder}/known_hosts > {folder}/forged")

    refused = fresh(
        f"ssh -nF {folder}/config -o UserKnownHostsFile={folder}/forged ct200 true 2>&1", status=255
    )

    assert "Host key verification failed" in refused


def test_two_hosts_with_two_nodes_each_answer_to_ansible(room):
    room.lab("up --fresh --hosts 2 --nodes 2")

    ansible = Path(sys.executable).with_name("ansible")
    said = room(f"LC_ALL=C.UTF-8 {ansible} -i inventory/lab lab -o -m ansible.builtin.ping 2>&1")

    assert said.count("SUCCESS") == 6
    room.lab("down")


def test_another_size_needs_a_fresh_lab(room):
    room.lab("up --fresh")

    assert "--fresh makes another size" in room.lab("up --hosts 2 2>&1", status=1)
