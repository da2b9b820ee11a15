#!/usr/bin/python
"""Ansible module: everything that a GPU diagnosis wants to know from inside a node, in one read-only call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_probe_node
short_description: gather a node's evidence about its GPUs, libraries and memory
description:
  - Opens each device node, asks libcuda (cuInit, count, one small allocation per GPU) and libnvidia-ml in
    child processes with a time limit, and reads limits, C(/dev/shm) and id map. Changes nothing.
  - A driver that hangs is killed, or left behind when it can't be; the play goes on either way.
options:
  gpus:
    description: How many GPU nodes to look for, beside those that are there.
    type: int
    default: 1
  limit_s:
    description: How long each of the three children may take.
    type: float
    default: 20
  allocate:
    description: Prove each GPU by a small allocation.
    type: bool
    default: true
  dev:
    description: Where device nodes are.
    type: path
    default: /dev
  shm:
    description: The memory filesystem that holds the models.
    type: path
    default: /dev/shm
  cuda_library:
    description: The CUDA driver's library.
    type: str
    default: libcuda.so.1
  nvml_library:
    description: NVIDIA's management library.
    type: str
    default: libnvidia-ml.so.1
  driver_version_file:
    description: Where the loaded module says its version.
    type: path
    default: /proc/driver/nvidia/version
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: none
    description: It only reads.
"""

EXAMPLES = r"""
- name: Look into the node
  gpu_probe_node:
    gpus: 8
"""

RETURN = r"""
evidence:
  description: What was seen; a missing field was not seen.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpu_probe.node_probe import ARGUMENTS, probe_node


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.exit_json(changed=False, evidence=probe_node(module.params))


if __name__ == "__main__":
    main()
