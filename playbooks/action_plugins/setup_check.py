"""Refuse a run whose inventory, plan or results folder can't work, before any machine is touched."""

from __future__ import annotations

DOCUMENTATION = """
    module: setup_check
    short_description: checks inventory, plan and results folder on the controller
    description:
      - Runs on the controller, touches no machine, and fails with every problem found, a line each.
    options:
      results_dir: {description: Where results are kept., type: path, required: true}
"""

import json
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

# Plugins are loaded by path: their packages have to be found first.
_PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_PROJECT / "playbooks"), str(_PROJECT / "roles/bench_run/files")]

from bench_runner.errors import PlanError
from bench_runner.plan_check import check_plan
from bench_runner.plan_contradictions import other_models
from bench_runner.plan_places import place_of
from setup_check.folder import folder_problem
from setup_check.inventory import inventory_problems
from setup_check.names import name_problems, plan_name_problem, unknown_nodes
from setup_check.places import places

# Variables of a node that name what is measured; playbooks hand them to the roles.
NAMED = ("plan", "configurations", "engines", "models")


class ActionModule(ActionBase):
    """See DOCUMENTATION."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = task_vars or {}
        _, args = self.validate_argument_spec(
            argument_spec={"results_dir": {"type": "path", "required": True}}
        )
        sources = variables.get("ansible_inventory_sources") or ["the inventory"]
        groups, hostvars = variables["groups"], variables["hostvars"]
        problems = inventory_problems(groups, hostvars, source=", ".join(map(str, sources)))
        if not problems:
            problems = self._plan_problems(groups["nodes"], hostvars)
        folder = folder_problem(Path(args["results_dir"]), create=not self._task.check_mode)
        problems += [folder] if folder else []
        result["changed"] = False
        if problems:
            result.update(failed=True, msg="\n".join(problems))
        else:
            result["summary"] = (
                f"{counted(groups['pve_hosts'], 'host')}, {counted(groups['nodes'], 'node')}, plan sound"
            )
        return result

    @staticmethod
    def _plan_problems(nodes: list[str], hostvars: Any) -> list[str]:  # noqa: ANN401 (Ansible's lazy mapping)
        """Problems of each node's plan, said once where nodes share it."""
        problems: dict[str, None] = {}
        for node in nodes:
            unknown = plan_name_problem(hostvars[node])
            if unknown:
                problems[unknown] = None
                continue
            missing = [name for name in NAMED if hostvars[node].get(name) is None]
            if missing:
                problems[f"node {node}: not set: {', '.join(missing)} (they belong in group_vars)"] = None
                continue
            where = places(hostvars[node]["plan"], project=_PROJECT)
            # Ansible's values carry tags that a strict reader takes for another type; JSON has none.
            plan, configurations, engines, models = json.loads(
                json.dumps([hostvars[node][name] for name in NAMED], default=str)
            )
            try:
                checked = check_plan(plan, places=where, known_configurations=set(configurations))
            except PlanError as exc:
                found = exc.problems
            else:
                found = name_problems(checked.configurations, configurations, engines, models)
                served = {name: configurations[name].get("model") for name in checked.configurations}
                said = [*other_models(checked, served), *unknown_nodes(checked.nodes, nodes)]
                found += [f"{place_of(each, where) or 'plan'}: {each}" for each in said]
            problems.update(dict.fromkeys(found))
        return list(problems)


def counted(names: list[str], what: str) -> str:
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'}"
