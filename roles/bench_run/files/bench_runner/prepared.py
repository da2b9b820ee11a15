"""All that is given to a run, read and checked before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench_runner.deployment import load_deployments
from bench_runner.environment import facts, load_environment
from bench_runner.plan_check import load_plan

if TYPE_CHECKING:
    from pathlib import Path

    from bench_runner.deployment import Deployment
    from bench_runner.environment import Environment
    from bench_runner.plan import Plan
    from bench_runner.records import Folder


class Prepared(Struct, frozen=True, kw_only=True):
    plan: Plan
    environment: Environment
    facts: dict[str, Any]
    deployments: dict[str, Deployment]


def prepare(folder: Folder, configurations: Path) -> Prepared:
    deployments = load_deployments(configurations)
    environment = load_environment(folder.environment)
    return Prepared(
        plan=load_plan(folder.plan, known_configurations=deployments),
        environment=environment,
        facts=facts(environment),
        deployments=deployments,
    )
