#!/usr/bin/python
"""Whether what serves on the node is in the way of a campaign, asked before anything is changed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bench_run_production
short_description: Refuses a campaign beside a production service that may not be stopped
description:
  - Fails when a unit that serves is up, may not be stopped, and the campaign has something left to measure.
  - Changes nothing.
options:
  units:
    description: Units that serve on this node.
    type: list
    elements: str
    required: true
  allowed:
    description: Whether they may be stopped for the campaign.
    type: bool
    required: true
  node:
    description: Name of the node in messages.
    type: str
    required: true
  campaign:
    description: The campaign's name.
    type: str
    required: true
  root:
    description: Folder of the campaigns.
    type: path
    required: true
attributes:
  check_mode: {description: It only reads., support: full}
  diff_mode: {support: none}
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Require that nothing serves, or that it may be stopped
  bench_run_production:
    units: [qwen.service]
    allowed: false
    node: ct200
    campaign: qwen3.6-27b
    root: /var/lib/bench
"""
RETURN = r"""
serving: {description: The units that are up., type: list, returned: always}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bench_run import campaign_files, production, unit


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "list", "elements": "str", "required": True},
            "allowed": {"type": "bool", "required": True},
            "node": {"type": "str", "required": True},
            "campaign": {"type": "str", "required": True},
            "root": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    given: dict[str, Any] = module.params
    status = campaign_files.read_status(Path(given["root"]) / given["campaign"])
    # What runs has stopped them already; of what is done nothing is left to disturb.
    harmless = campaign_files.is_done(status) or _is_running(module, given["campaign"])
    try:
        up, notes = production.serving(
            given["units"], module.run_command, allowed=given["allowed"] or harmless
        )
    except production.ProductionError as exc:
        module.fail_json(msg=f"{given['node']}: {exc}")
    for note in notes:
        module.warn(f"{given['node']}: {note}")
    module.exit_json(changed=False, serving=up)


def _is_running(module: AnsibleModule, campaign: str) -> bool:
    command = ["systemctl", "show", "--property=ActiveState", "--value", "--", unit.unit_name(campaign)]
    status, out, _ = module.run_command(command)
    return status == 0 and unit.is_live(str(out).strip())


if __name__ == "__main__":
    main()
