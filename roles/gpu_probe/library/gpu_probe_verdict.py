#!/usr/bin/python
"""Documentation of the action plugin gpu_probe_verdict, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_probe_verdict
short_description: name the causes that the evidence of a host and a node proves
description:
  - Runs on the controller, without a connection. Returns the diagnosis, one line for the operator, and the
    entries for C(recovery.json).
options:
  host:
    description: The Proxmox VE host's name in the inventory.
    type: str
    required: true
  vmid:
    description: The container's id on it.
    type: int
    required: true
  host_call:
    description: Result of M(gpu_probe_host).
    type: dict
    required: true
  node_call:
    description: Result of M(gpu_probe_node).
    type: dict
    required: true
  through_host_call:
    description: Result of a second M(gpu_probe_host) with I(through_host), if there was one.
    type: dict
    default: {}
  expected_gpus:
    description: GPUs that the node should see.
    type: int
    default: 0
  host_gpus:
    description: GPUs that the host should have; 0 for as many as the node.
    type: int
    default: 0
  model_bytes:
    description: Size of the model that C(/dev/shm) must hold; 0 when it isn't known.
    type: int
    default: 0
  before:
    description: An earlier diagnosis of this node (file on the controller); what changed since is named.
    type: path
  save_to:
    description: Folder on the controller in which C(<node>.json) is written.
    type: path
  known:
    description: A diagnosis from earlier in this run; causes that it already named are not reported again.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: It touches no host. I(save_to) is written in check mode too, since it is a report.
"""

EXAMPLES = r"""
- name: Name the causes
  gpu_probe_verdict:
    host: kpro6
    vmid: 200
    host_call: "{{ host_evidence }}"
    node_call: "{{ node_evidence }}"
    expected_gpus: 8
"""

RETURN = r"""
diagnosis:
  description: As in collector/schemas/diagnosis.schema.json.
  type: dict
  returned: always
"""
