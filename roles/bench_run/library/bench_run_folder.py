#!/usr/bin/python
"""Whether a campaign's results can be kept on the node, before anything is installed there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bench_run_folder
short_description: Requires a folder that can keep the results of campaigns
description:
  - Tries the folder, or the nearest one above it that is there, by writing a file that is removed at once.
  - Refuses a folder that can't be written, one on a filesystem in memory, and one with less free space than a
    campaign needs.
options:
  root:
    description: Folder of the campaigns.
    type: path
    required: true
  node:
    description: The node's name, for messages.
    type: str
    required: true
attributes:
  check_mode: {description: Nothing is changed in either mode., support: full}
  diff_mode: {support: none}
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Require a folder for results
  bench_run_folder:
    root: /var/lib/bench
    node: ct200
"""
RETURN = r"""
free_bytes: {description: What is free there., type: int, returned: always}
summary: {description: Where results are kept and what is free there., type: str, returned: always}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bench_run import folder

GB = 10**9


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "node": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    root = Path(module.params["root"])
    problem = folder.problem(root, Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    if problem:
        module.fail_json(msg=f"{module.params['node']}: {problem}")
    free = folder.free_bytes(folder.nearest(root))
    module.exit_json(changed=False, free_bytes=free, summary=f"results in {root}, {free / GB:.1f} GB free")


if __name__ == "__main__":
    main()
