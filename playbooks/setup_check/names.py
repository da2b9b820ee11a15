"""Problems of the names that a plan, its configurations, engines and models call each other by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from setup_check.inventory import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

Named = dict[str, dict[str, Any]]


def name_problems(plan: Mapping[str, Any], configurations: Named, engines: Named, models: Named) -> list[str]:
    """Each reference to something that is not there, with the nearest name that is."""
    planned = [str(name) for name in plan.get("configurations") or []]
    problems = [
        f"plan: configuration {name!r} is unknown{nearest(name, configurations)}"
        for name in planned
        if name not in configurations
    ]
    baseline = plan.get("baseline")
    if baseline is not None and baseline not in planned:
        problems.append(
            f"plan: the baseline {baseline!r} is not one of its configurations: {', '.join(planned)}"
        )
    for name in planned:
        configuration = configurations.get(name)
        if configuration is None:
            continue
        for key, known in (("engine", engines), ("model", models), ("draft_model", models)):
            value = configuration.get(key)
            if value is None and key == "draft_model":
                continue
            if value not in known:
                found = "missing" if value is None else f"{value!r}, which is unknown"
                problems.append(f"configuration {name}: {key} is {found}{nearest(str(value), known)}")
    return problems
