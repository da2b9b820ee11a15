#!/usr/bin/python
"""Ansible module: what a GPU diagnosis wants to know from a Proxmox VE host, in one read-only call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_probe_host
short_description: gather a Proxmox VE host's evidence about its GPUs and containers
description:
  - Reads majors, device nodes, driver, PCI inventory, kernel log, GPU processes, and for each asked container
    its file, status, lock and limits. Changes nothing. What it could not see is listed in C(evidence.unseen).
  - Without root it sees less, and says so.
  - The action plugin of the same name adds the link question (is the host there at all?) and waits for it.
options:
  vmids:
    description: Container ids to look at.
    type: list
    elements: int
    default: []
  through_host:
    description: Run the node's probe by C(pct exec) as well, for a node whose own ssh is down.
    type: bool
    default: false
  node:
    description: Parameters of that probe, as those of M(gpu_probe_node).
    type: dict
    default: {}
  conf_dir:
    description: Where the containers' files are.
    type: path
    default: /etc/pve/lxc
  proc_devices:
    description: The kernel's list of majors.
    type: path
    default: /proc/devices
  dev:
    description: Where device nodes are.
    type: path
    default: /dev
  pci_devices:
    description: The PCI inventory in sysfs.
    type: path
    default: /sys/bus/pci/devices
  proc_driver:
    description: The NVIDIA driver's folder in procfs.
    type: path
    default: /proc/driver/nvidia
  sys_module:
    description: Loaded modules in sysfs.
    type: path
    default: /sys/module
  modules_root:
    description: Where module files are, by kernel.
    type: path
    default: /lib/modules
  cgroup_root:
    description: The cgroup2 root, for the containers' live limits.
    type: path
    default: /sys/fs/cgroup
  ha_file:
    description: The HA manager's resources.
    type: path
    default: /etc/pve/ha/resources.cfg
  major_records:
    description: Which majors were NVIDIA's at earlier boots; written by pve_lxc.
    type: path
    default: /var/lib/recover-and-bench/majors.json
  pct:
    description: The C(pct) command.
    type: str
    default: pct
  nvml_library:
    description: NVIDIA's management library.
    type: str
    default: libnvidia-ml.so.1
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: none
    description: It only reads.
"""

EXAMPLES = r"""
- name: Look at the host and container 200
  gpu_probe_host:
    vmids: [200]
"""

RETURN = r"""
evidence:
  description: What was seen; a missing field was not seen.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpu_probe.host_probe import probe_host
from ansible.module_utils.gpu_probe.node_probe import ARGUMENTS as NODE_ARGUMENTS

ARGUMENTS = {
    "vmids": {"type": "list", "elements": "int", "default": []},
    "through_host": {"type": "bool", "default": False},
    # With `wait_s` of its action plugin, which has no use here: the host is there already.
    "node": {"type": "dict", "default": {}, "options": {**NODE_ARGUMENTS, "wait_s": {"type": "float"}}},
    "conf_dir": {"type": "path", "default": "/etc/pve/lxc"},
    "proc_devices": {"type": "path", "default": "/proc/devices"},
    "dev": {"type": "path", "default": "/dev"},
    "pci_devices": {"type": "path", "default": "/sys/bus/pci/devices"},
    "proc_driver": {"type": "path", "default": "/proc/driver/nvidia"},
    "sys_module": {"type": "path", "default": "/sys/module"},
    "modules_root": {"type": "path", "default": "/lib/modules"},
    "cgroup_root": {"type": "path", "default": "/sys/fs/cgroup"},
    "ha_file": {"type": "path", "default": "/etc/pve/ha/resources.cfg"},
    "major_records": {"type": "path", "default": "/var/lib/recover-and-bench/majors.json"},
    "pct": {"type": "str", "default": "pct"},
    "nvml_library": {"type": "str", "default": "libnvidia-ml.so.1"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.exit_json(changed=False, evidence=probe_host(module.params))


if __name__ == "__main__":
    main()
