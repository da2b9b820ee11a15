#!/usr/bin/python
"""Say which models a node could give to others; reads only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_stage_holdings
short_description: Which models are published and proven on a node
options:
  names:
    description: The models in question.
    type: list
    elements: str
    required: true
  root:
    description: The folder they are published in.
    type: path
    required: true
  program:
    description: The stager, as the lookup C(model_stage_program) packs it.
    type: dict
    required: true
  program_dir:
    description: Where the stager is kept on the node.
    type: path
    required: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Ask a node what it has
  model_stage_holdings:
    names: [tiny]
    root: /dev/shm
    program: "{{ lookup('model_stage_program', role_path ~ '/files/model_stager') }}"
    program_dir: /opt/recover-and-bench/model-stager
"""
RETURN = r"""
holds:
  description: Name, digest, commit and what was asked for, of each model that is there.
  returned: always
  type: list
"""

import sys
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.model_stage import program, serving


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "root": {"type": "path", "required": True},
            "program": {"type": "dict", "required": True, "no_log": True},
            "program_dir": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    with tempfile.TemporaryDirectory(prefix="model-stage-", dir=module.tmpdir) as scratch:
        base, digest = Path(wanted["program_dir"]), wanted["program"]["digest"]
        folder = program.version_folder(base, digest)
        if not program.is_installed(base, digest):
            folder = Path(scratch)
            program.unpack(wanted["program"]["zip"], folder)
        holds = serving.holdings(
            module.run_command, wanted["root"], wanted["names"], sys.executable, str(folder)
        )
    module.exit_json(changed=False, holds=holds)


if __name__ == "__main__":
    main()
