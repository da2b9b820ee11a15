"""The Ansible inventory of the lab, in the words of the project's inventory vocabulary."""

from __future__ import annotations

from typing import Any

from tests.lab import fleet as names
from tests.lab import models, paths


def running_fleet() -> names.Fleet:
    """The running lab's fleet, or one of the default size when there is none."""
    return names.load_fleet(paths.FLEET_FILE) or names.make_fleet()


def running_inventory() -> dict[str, Any]:
    return inventory(running_fleet(), names.load_model(paths.FLEET_FILE))


def inventory(fleet: names.Fleet, model: str = "tiny") -> dict[str, Any]:
    hostvars: dict[str, dict[str, Any]] = {}
    for host in fleet.hosts:
        hostvars[host.name] = {
            "ansible_host": host.address,
            "gpu_count": names.GPUS_PER_HOST,
        }
    for node in fleet.nodes:
        hostvars[node.name] = {"ansible_host": node.address, "pve_host": node.host, "vmid": node.vmid}
        if model != "tiny":  # what `up --model` was told; else it is as group_vars say
            hostvars[node.name]["lab_model"] = models.find_model(model).served_name
    common = {
        "ansible_user": "root",
        "ansible_ssh_common_args": f"-F {paths.SSH_CONFIG}",
    }
    return {
        "_meta": {"hostvars": hostvars},
        "lab": {"children": ["pve_hosts", "nodes"], "vars": common},
        "pve_hosts": {"hosts": [host.name for host in fleet.hosts]},
        "nodes": {"hosts": [node.name for node in fleet.nodes]},
    }
