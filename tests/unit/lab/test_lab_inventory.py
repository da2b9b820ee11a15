"""The lab's inventory: the words of the inventory vocabulary, and a value from group_vars that arrives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.fleet import make_fleet
from tests.lab.inventory import inventory

PROJECT = Path(__file__).parents[3]


def test_hosts_and_nodes_have_what_the_playbooks_map_to_roles():
    found = inventory(make_fleet(2, 1))

    assert found["lab"]["children"] == ["pve_hosts", "nodes"]
    assert found["pve_hosts"]["hosts"] == ["pve", "pve2"]
    assert found["nodes"]["hosts"] == ["ct200", "ct201"]
    assert found["_meta"]["hostvars"]["pve2"] == {
        "ansible_host": "10.77.0.11",
        "gpu_count": 2,
    }
    assert found["_meta"]["hostvars"]["ct201"] == {
        "ansible_host": "10.77.0.21",
        "pve_host": "pve2",
        "vmid": 201,
    }


def test_the_model_that_the_lab_was_brought_up_with_is_the_nodes():
    found = inventory(make_fleet(), "gemma")

    assert found["_meta"]["hostvars"]["ct200"]["lab_model"] == "gemma-3-270m"
    assert "lab_model" not in inventory(make_fleet(), "tiny")["_meta"]["hostvars"]["ct200"]


def test_connections_use_the_keys_that_the_lab_made():
    assert inventory(make_fleet())["lab"]["vars"] == {
        "ansible_user": "root",
        "ansible_ssh_common_args": "-F /run/lab/ssh/config",
    }


@pytest.mark.parametrize("folder", [".", "playbooks"])
def test_ansible_reads_it_without_a_complaint_from_both_places_of_a_playbook(folder):
    done = subprocess.run(
        [
            Path(sys.executable).with_name("ansible-inventory"),
            *("-i", PROJECT / "inventory/lab", "--playbook-dir", PROJECT / folder, "--list"),
        ],
        cwd=PROJECT,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["nodes"]["hosts"][0] == "ct200"
    assert found["_meta"]["hostvars"]["ct200"]["lab_model"] == "tiny-qwen2"
