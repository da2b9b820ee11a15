"""Problems of the names that configurations call engines and models by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from setup_check.inventory import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

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
