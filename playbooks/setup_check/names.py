"""Problems of the names that configurations call engines and models by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from setup_check.inventory import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Named = dict[str, dict[str, Any]]


def name_problems(planned: Sequence[str], configurations: Named, engines: Named, models: Named) -> list[str]:
    """Each engine and model that is called and not there, with the nearest name that is."""
    problems = []
    for name in planned:
        for key, known in (("engine", engines), ("model", models), ("draft_model", models)):
            value = configurations[name].get(key)
            if value is None and key == "draft_model":
                continue
            if value not in known:
                found = "missing" if value is None else f"{value!r}, which is unknown"
                problems.append(f"configuration {name}: {key} is {found}{nearest(str(value), known)}")
    return problems


def plan_name_problem(variables: Mapping[str, Any]) -> str | None:
    """Where a plan is chosen by name, and there is none of that name. Asked before the plan itself is."""
    plans, name = variables.get("plans"), variables.get("plan_name")
    if not isinstance(plans, dict) or name in plans or "plan" not in variables or not _is_chosen(variables):
        return None
    return f"plan_name is {name!r}: there is no such plan in group_vars{nearest(str(name), plans)}"


def unknown_nodes(wanted: Sequence[str], nodes: Sequence[str]) -> Iterator[str]:
    """Nodes that a plan names and the inventory doesn't know."""
    for index, name in enumerate(wanted):
        if name not in nodes:
            yield f"nodes[{index}]: {name!r} is no node of the inventory{nearest(name, nodes)}"


def _is_chosen(variables: Mapping[str, Any]) -> bool:
    """Whether `plan` is one of the plans; one that is given whole (-e @plan.yml) needs no name."""
    try:
        return variables["plan"] is None
    except Exception:  # noqa: BLE001 - Ansible's template errors, which the plain functions here don't know
        return True
