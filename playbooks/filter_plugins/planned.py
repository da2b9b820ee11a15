"""What a plan needs of the configurations and models that a fleet knows."""

from __future__ import annotations

from typing import Any

Named = dict[str, dict[str, Any]]


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


class FilterModule:
    """Ansible's way of finding filters."""

    def filters(self) -> dict[str, Any]:
        return {"planned": planned_configurations, "planned_models": planned_models}
