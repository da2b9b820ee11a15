#!/usr/bin/python
"""Give a campaign its plan and start it, where a cell is not done; the measuring is the runner's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bench_run_campaign
short_description: Starts a benchmark campaign as a unit that outlives the connection
description:
  - Asks the installed runner what there is to do, before anything is written. What the runner refuses, this
    refuses, in the runner's words.
  - Makes the runner's account where it is missing, writes C(plan.yml) and C(environment.json) into the
    campaign's folder, and starts C(bench-run-<campaign>.service), unless every cell is done.
  - A campaign that runs already is left alone, to be followed.
options:
  plan:
    description: The campaign; its C(name) names the folder and the unit.
    type: dict
    required: true
  environment:
    description: C(node), C(host) and C(host_facts), for the fingerprint of each cell.
    type: dict
    required: true
  root:
    description: Folder of the campaigns.
    type: path
    required: true
  owner:
    description: System user of the runner, made when it is missing.
    type: str
    required: true
  group:
    description: Group of the runner, made when it is missing.
    type: str
    required: true
  python:
    description: Python of the runner's venv.
    type: path
    required: true
  configurations_dir:
    description: Folder of the descriptions of what is deployed.
    type: path
    required: true
  control_socket:
    description: Socket that starts and stops servers.
    type: path
    required: true
  retry:
    description: Run cells again whose attempts are used up.
    type: bool
    default: false
  quick:
    description: Measure the plan's quick campaign only.
    type: bool
    default: false
  deadline:
    description: No new cell starts after it; empty leaves it to the plan.
    type: str
    default: ''
  production_units:
    description: Units that serve on this node beside the campaign.
    type: list
    elements: str
    default: []
  stop_production_allowed:
    description: Whether they may be stopped for the campaign; they are started again after it.
    type: bool
    default: false
  hardened:
    description: Whether the unit is hardened.
    type: bool
    default: true
attributes:
  check_mode: {description: Says what would be measured., support: full}
  diff_mode: {description: The plan's and the environment's file., support: full}
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Start the campaign
  bench_run_campaign:
    plan: "{{ plan }}"
    environment: {node: ct200, host: pve, host_facts: {}}
    root: /var/lib/bench
    owner: bench
    group: bench
    python: /opt/recover-and-bench/bench-runner/bin/python
    configurations_dir: /etc/inference-server/configurations
    control_socket: /run/inference-control.sock
  register: started
"""
RETURN = r"""
follow: {description: Whether a campaign runs that is to be followed., type: bool, returned: always}
attached: {description: Whether it ran before this call., type: bool, returned: always}
counts: {description: "Cells to run, keep, leave and skip.", type: dict, returned: when it was asked}
since_seq: {description: The journal's last event before this call., type: int, returned: always}
run_before: {description: The runner's last start before this call., type: str, returned: always}
production: {description: Units that the campaign starts again at its end., type: list, returned: always}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bench_run import campaign_files, unit
from ansible.module_utils.bench_run.accounts import missing_accounts
from ansible.module_utils.bench_run.answer import summary
from ansible.module_utils.bench_run.campaign import Campaign


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "environment": {"type": "dict", "required": True},
            "root": {"type": "path", "required": True},
            "owner": {"type": "str", "required": True},
            "group": {"type": "str", "required": True},
            "python": {"type": "path", "required": True},
            "configurations_dir": {"type": "path", "required": True},
            "control_socket": {"type": "path", "required": True},
            "retry": {"type": "bool", "default": False},
            "quick": {"type": "bool", "default": False},
            "deadline": {"type": "str", "default": ""},
            "production_units": {"type": "list", "elements": "str", "default": []},
            "stop_production_allowed": {"type": "bool", "default": False},
            "hardened": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    campaign = Campaign(module)
    result: dict[str, Any] = {
        "campaign": campaign.name,
        "changed": False,
        "follow": False,
        "attached": False,
        "since_seq": campaign_files.last_seq(campaign.folder),
        "run_before": str(campaign_files.read_status(campaign.folder).get("run", "")),
        "production": [],
    }
    nodes, node = module.params["plan"].get("nodes") or [], module.params["environment"].get("node")
    if nodes and node not in nodes:
        module.exit_json(
            **result, summary=f"{campaign.name} is for {', '.join(nodes)}: nothing to measure here"
        )
    if not Path(module.params["python"]).exists() and module.check_mode:
        unknown = "which cells are done is not known: the runner is not installed yet"
        module.exit_json(
            **{**result, "changed": True, "summary": f"would measure {campaign.name} ({unknown})"}
        )
    differing = campaign.differing()
    if campaign.is_running():
        attach(campaign, result, other_plan="plan.yml" in differing)
    answer = campaign.ask()
    counts = answer["counts"]
    to_run = counts.get("run", 0)
    needed = to_run > 0 or answer["new_skips"] > 0
    if not needed:
        # Facts of the place matter to cells that run; some (a live clock, an uptime) differ at each look.
        differing.pop("environment.json", None)
    serving = campaign.serving() if needed else []
    accounts = missing_accounts(module.params["owner"], module.params["group"], module.params["root"])
    result.update(
        changed=bool(differing or accounts) or needed,
        follow=needed and not module.check_mode,
        counts=counts,
        production=serving,
        diff=campaign.diff(differing),
    )
    if not module.check_mode:
        campaign.make_accounts(accounts)
        campaign.write(differing)
        if needed:
            campaign.start(serving)
    if not result["follow"]:
        stops = f"; would stop {', '.join(serving)} for it, and start it again" if serving else ""
        result["summary"] = summary(answer, check_mode=module.check_mode) + stops
        result["recovery"] = {
            "bench": {"campaign": campaign.name, "kept": counts.get("keep", 0), "measured": 0}
        }
    module.exit_json(**result)


def attach(campaign: Campaign, result: dict[str, Any], *, other_plan: bool) -> None:
    """Follow what runs. Another plan is not slipped under a running campaign."""
    if other_plan and not campaign.module.check_mode:
        campaign.module.fail_json(
            msg=f"{campaign.where()} is running with another plan.yml; wait for its end, or stop it first: "
            f"systemctl stop {unit.unit_name(campaign.name)}"
        )
    line = campaign_files.progress(campaign_files.read_status(campaign.folder))
    result.update(
        follow=not campaign.module.check_mode,
        attached=True,
        run_before="",  # what the status says now is of the run to be followed
        production=campaign.stopped_before(),
        progress=f"running already: {line}",
    )
    campaign.module.exit_json(**result)


if __name__ == "__main__":
    main()
