"""What a plan needs of the fleet, and who speaks for a host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from setup_check.inventory import nearest

Named = dict[str, dict[str, Any]]


def plan_named(plans: Named, name: str) -> dict[str, Any]:
    """The plan of that name; a stage alone says as clearly as the whole run that there is none."""
    if name not in plans:
        raise AnsibleFilterError(
            f"plan_name is {str(name)!r}: there is no such plan in group_vars{nearest(str(name), plans)}"
        )
    return plans[name]


def planned_configurations(configurations: Named, plan: dict[str, Any]) -> Named:
    """Return the configurations that a plan measures, in the plan's order."""
    return {name: configurations[name] for name in plan["configurations"]}


def planned_models(models: Named, plan: dict[str, Any], configurations: Named) -> list[dict[str, Any]]:
    """The models that a plan serves, targets and drafts, in the order they are needed, each with its name."""
    names: dict[str, None] = {}
    for configuration in planned_configurations(configurations, plan).values():
        for key in ("model", "draft_model"):
            if configuration.get(key):
                names[configuration[key]] = None
    return [{"name": name, **models[name]} for name in names]


def planned_sets(plan: dict[str, Any], configurations: Named) -> list[list[str]]:
    """What each configuration serves at once, target and draft, in the plan's order; repeats left out."""
    sets: list[list[str]] = []
    for configuration in planned_configurations(configurations, plan).values():
        names = [configuration[key] for key in ("model", "draft_model") if configuration.get(key)]
        if not sets or sets[-1] != names:
            sets.append(names)
    return sets


def planned_bytes(models: list[dict[str, Any]], sizes: dict[str, int]) -> int:
    """What all planned models need together, by the sizes that are known; 0 where none is."""
    return sum(int(sizes.get(model["name"], 0)) for model in models)


def leads_its_host(node: str, nodes: list[str], hostvars: Any) -> bool:  # noqa: ANN401 (Ansible's lazy mapping)
    """Whether a node is the first of its host among `nodes`: the one that speaks for the host."""
    host = hostvars[node]["pve_host"]
    return next(other for other in nodes if hostvars[other].get("pve_host") == host) == node


class FilterModule:
    """Ansible's way of finding filters."""

    def filters(self) -> dict[str, Any]:
        return {
            "plan_named": plan_named,
            "planned": planned_configurations,
            "planned_models": planned_models,
            "planned_sets": planned_sets,
            "planned_bytes": planned_bytes,
            "leads_its_host": leads_its_host,
        }
