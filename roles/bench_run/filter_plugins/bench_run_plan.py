"""The plan's checks as a filter: the runner's own, so that controller and node agree."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# The runner is no package of the controller; it is beside this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "files"))

from bench_runner.deadline import DeadlineError, check_deadline
from bench_runner.errors import PlanError
from bench_runner.plan_check import check_plan


def plan_problems(plan: Any, deadline: Any = None) -> list[str]:  # noqa: ANN401 - whatever stands in the inventory
    """A sentence for each thing that is wrong with a plan, or with the run's own deadline."""
    problems = []
    try:
        # Ansible's values carry tags that a strict reader takes for another type; JSON has none.
        check_plan(json.loads(json.dumps(plan, default=str)))
    except PlanError as exc:
        problems = list(exc.problems)
    try:
        if deadline:
            check_deadline(str(deadline))
    except DeadlineError as exc:
        problems.append(f"bench_run_deadline: found {str(deadline)!r}, {exc}")
    return problems


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"bench_run_plan_problems": plan_problems}
