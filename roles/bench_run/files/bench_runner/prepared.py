"""All that is given to a run, read and checked before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench_runner.deployment import load_deployments
from bench_runner.environment import facts, load_environment
from bench_runner.errors import PlanError
from bench_runner.plan_check import load_plan, nearest
from bench_runner.plan_contradictions import other_models

if TYPE_CHECKING:
    from bench_runner.deployment import Deployment
    from bench_runner.environment import Environment
    from bench_runner.plan import Plan
    from bench_runner.records import Folder


# Where the role model_stage says which models can't be in memory together.
SWITCH_PLAN = Path("/etc/model-stage/plan.json")


class Wishes(Struct, frozen=True, kw_only=True):
    """What one run is asked beside its plan; the command line's word goes before the plan's."""

    retry: bool = False
    quick: bool = False
    deadline: str | None = None
    staged: bool = True  # False: asked before the models are staged


class Prepared(Struct, frozen=True, kw_only=True):
    plan: Plan
    environment: Environment
    facts: dict[str, Any]
    deployments: dict[str, Deployment]
    take_turns: bool = False  # the models don't fit into memory together


def prepare(folder: Folder, configurations: Path) -> Prepared:
    deployments = load_deployments(configurations)
    environment = load_environment(folder.environment)
    plan = load_plan(folder.plan, known_configurations=deployments)
    problems = list(other_models(plan, {name: each.model for name, each in deployments.items()}))
    if plan.nodes and environment.node not in plan.nodes:
        problems.append(
            f"nodes: this node is {environment.node!r}, which the plan is not for; "
            f"{nearest(environment.node, plan.nodes)}"
        )
    if problems:
        raise PlanError([f"{folder.plan.name}: {problem}" for problem in problems])
    return Prepared(
        plan=plan,
        environment=environment,
        facts=facts(environment),
        deployments=deployments,
        take_turns=SWITCH_PLAN.is_file(),
    )
