#!/usr/bin/python
"""Bring models into memory with the stager, and follow it; the work itself is the stager's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_stage
short_description: Stage models into memory, verified, by a unit that outlives the connection
description:
  - Without O(pending), compares every model with what is published (milliseconds when all is right),
    refuses what can't work before anything is written, then starts the stager for the first model.
  - With O(pending) from the first call, follows the work, in an C(until) loop; each call waits a moment
    for news.
options:
  models:
    description: The models in the order in which they are needed.
    type: list
    elements: dict
    required: true
  root:
    description: The folder to publish in.
    type: path
    default: /dev/shm
  program:
    description: The stager, as the lookup C(model_stage_program) packs it. Hidden to keep logs short.
    type: dict
    required: true
  program_dir:
    description: Where the stager is kept on the node.
    type: path
    required: true
  manifests:
    description: Contents of manifests that the controller keeps, by model.
    type: dict
    default: {}
  reserve_bytes:
    description: Memory to be left for the engine.
    type: int
    default: 0
  user:
    description: System user that stages; empty for the connection's user.
    type: str
    default: ''
  launcher:
    description: How the stager is started.
    type: str
    choices: [auto, systemd, process]
    default: auto
  deep:
    description: Hash everything, whatever the quick proof says.
    type: bool
    default: false
  python:
    description:
      - Interpreter of the venv with the hub's client, used where it is there.
    type: path
    default: ''
  token_file:
    description: File on the node with the token for the hub; only its owner, root, may read it.
    type: path
    default: ''
  hold:
    description:
      - Start nothing where a model can only be had from other nodes, or from the hub while its client is not
        there; say in RV(needs) what they are asked for.
    type: bool
    default: false
  leave:
    description: Models that are not this call's business, as their time is still to come.
    type: list
    elements: str
    default: []
  since:
    description: When the first call began, by the node's clock since its boot, as that call said.
    type: float
    default: 0
  sets:
    description: Models that must be there at the same time, by name, in the plan's order; by default all.
    type: list
    elements: list
    default: []
  remove_allowed:
    description: Old models may be removed where room is needed, least recently used first, never one in use.
    type: bool
    default: false
  grow_allowed:
    description: The tmpfs may be made larger, as far as memory and its limit allow.
    type: bool
    default: false
  switch_allowed:
    description: Sets that don't fit together may take each other's place later; see RV(plan).
    type: bool
    default: false
  in_memory:
    description: Whether models are put into memory; a model's own C(in_memory) goes first.
    type: bool
    default: true
  state_dir:
    description: Where it is recorded what is served from where it lies; empty for never.
    type: path
    default: ''
  disk_root:
    description: Where models are staged that can be neither in memory nor served from where they lie.
    type: path
    default: ''
  reader:
    description: The user who has to be able to read what is served from where it lies; empty for any.
    type: str
    default: ''
  plan_dir:
    description: Where the role keeps the plan for a later switch, and the controller's manifests.
    type: path
    default: /etc/model-stage
  pending:
    description: What an earlier call has left to follow.
    type: list
    elements: dict
  done:
    description: What earlier calls have found finished.
    type: list
    elements: dict
    default: []
  wait_s:
    description: How long one call waits for news.
    type: float
    default: 1.0
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Stage the models
  model_stage:
    program: "{{ lookup('model_stage_program', role_path ~ '/files/model_stager') }}"
    program_dir: /opt/recover-and-bench/model-stager
    models:
      - name: tiny
        repo: lab/tiny
        sources: [{kind: hf_cache, path: /root/.cache/huggingface/hub}]
  register: started
"""
RETURN = r"""
finished:
  description: Whether every model is published and proven.
  returned: always
  type: bool
needs:
  description: With O(hold), the models that others must give, and what is known of them.
  returned: always
  type: list
holds:
  description: The models that are published and proven, with their digest and what was asked for.
  returned: always
  type: list
will:
  description: The models that this node can take from its own sources, in the same form.
  returned: always
  type: list
since:
  description: For the option of that name.
  returned: always
  type: float
pending:
  description: What is left to follow.
  returned: always
  type: list
plan:
  description: For a later switch, the files to keep and what its unit needs; null when nothing has to wait.
  returned: always
  type: dict
switch:
  description: Whether a plan of an earlier run is there, and whether systemd is.
  returned: always
  type: dict
deferred:
  description: The names of the files of each model whose turn comes later, by its name.
  returned: always
  type: dict
paths:
  description: Where each model is, or will be when its turn comes, by its name.
  returned: always
  type: dict
digests:
  description: The digest of each model's contents, by its name.
  returned: always
  type: dict
bytes:
  description: What each model of the present round takes in memory, by its name.
  returned: always
  type: dict
models:
  description: A record of each finished model.
  returned: always
  type: list
progress:
  description: How far the work is.
  returned: while it runs
  type: str
summary:
  description: What was found and done.
  returned: when finished
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.model_stage import runner
from ansible.module_utils.model_stage.calls import Staging


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {"type": "list", "elements": "dict", "required": True},
            "root": {"type": "path", "default": "/dev/shm"},  # noqa: S108 - the purpose
            "program": {"type": "dict", "required": True, "no_log": True},
            "program_dir": {"type": "path", "required": True},
            "manifests": {"type": "dict", "default": {}},
            "reserve_bytes": {"type": "int", "default": 0},
            "user": {"type": "str", "default": ""},
            "launcher": {"type": "str", "choices": ["auto", "systemd", "process"], "default": "auto"},
            "deep": {"type": "bool", "default": False},
            "python": {"type": "path", "default": ""},
            "token_file": {"type": "path", "default": "", "no_log": False},  # a path, not the secret
            "hold": {"type": "bool", "default": False},
            "leave": {"type": "list", "elements": "str", "default": []},
            "since": {"type": "float", "default": 0.0},
            "sets": {"type": "list", "elements": "list", "default": []},
            "remove_allowed": {"type": "bool", "default": False},
            "grow_allowed": {"type": "bool", "default": False},
            "switch_allowed": {"type": "bool", "default": False},
            "in_memory": {"type": "bool", "default": True},
            "state_dir": {"type": "path", "default": ""},
            "disk_root": {"type": "path", "default": ""},
            "reader": {"type": "str", "default": ""},
            "plan_dir": {"type": "path", "default": "/etc/model-stage"},
            "pending": {"type": "list", "elements": "dict"},
            "done": {"type": "list", "elements": "dict", "default": []},
            "wait_s": {"type": "float", "default": 1.0},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    staging = Staging(module)
    try:
        if module.params["pending"]:
            staging.later_call()
        else:
            staging.first_call()
    except runner.StartError as exc:
        module.fail_json(msg=str(exc), finished=True)
    except OSError as exc:
        module.fail_json(msg=f"{exc.strerror or exc} ({exc.filename})", finished=True)


if __name__ == "__main__":
    main()
