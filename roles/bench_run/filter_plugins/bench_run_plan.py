"""The plan's checks as a filter: the runner's own, so that controller and node agree."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# The runner is no package of the controller; it is beside this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "files"))

from bench_runner.errors import PlanError
from bench_runner.plan_check import check_plan


def plan_problems(plan: Any) -> list[str]:  # noqa: ANN401 - whatever stands in the inventory
    """A sentence for each thing that is wrong with a plan; empty where nothing is."""
    try:
        # Ansible's values carry tags that a strict reader takes for another type; JSON has none.
        check_plan(json.loads(json.dumps(plan, default=str)))
    except PlanError as exc:
        return exc.problems
    return []


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"bench_run_plan_problems": plan_problems}
