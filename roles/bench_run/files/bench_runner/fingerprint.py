"""What a cell's numbers depend on, in three lists: identity, comparability, recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bench_runner import MEASURING_VERSION, __version__
from bench_runner.cells import POINT_UNITS, definition
from bench_runner.environment import COMPARABILITY_FACTS, IDENTITY_FACTS
from bench_runner.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_runner.cells import Cell
    from bench_runner.deployment import Deployment
    from bench_runner.plan import Plan


class Fingerprint(Struct, frozen=True, kw_only=True):
    identity: dict[str, Any]
    comparability: dict[str, Any]
    recorded: dict[str, Any]


def fingerprints(
    plan: Plan, deployments: Mapping[str, Deployment], facts: dict[str, Any]
) -> dict[tuple[str, str], Fingerprint]:
    """By configuration and workload, known before a server runs: a cell that is done is known without one."""
    workloads = [name for name in POINT_UNITS if getattr(plan.workloads, name) is not None]
    defined = {name: definition(plan, name) for name in workloads}
    return {
        (configuration, workload): _fingerprint(defined[workload], deployments[configuration], facts)
        for configuration in plan.configurations
        for workload in workloads
    }


def _fingerprint(workload: dict[str, Any], deployment: Deployment, facts: dict[str, Any]) -> Fingerprint:
    identity = {
        "engine": deployment.engine,
        "engine_build": deployment.engine_build,
        "model": deployment.model,
        "model_digest": deployment.model_digest,
        "tensor_parallelism": deployment.tensor_parallelism,
        "context_tokens": deployment.context_tokens,
        "flags": deployment.flags,
        "workload": workload,
        "measuring_version": MEASURING_VERSION,
        **{name: facts.get(name) for name in IDENTITY_FACTS},
    }
    comparability = {name: facts.get(name) for name in COMPARABILITY_FACTS}
    rest = {
        name: facts[name] for name in sorted(facts) if name not in {*IDENTITY_FACTS, *COMPARABILITY_FACTS}
    }
    recorded = {
        **rest,
        "runner_version": __version__,
        "model_path": deployment.model_path,
        "unit": deployment.unit,
    }
    return Fingerprint(identity=identity, comparability=comparability, recorded=recorded)


def content_hash(cell: Cell, identity: dict[str, Any]) -> str:
    """Names what was measured: two cells with one hash are the same measurement.

    The configuration's name isn't in it on purpose: its flags are.
    """
    return sha256_of(
        canonical(
            {"identity": identity, "workload": cell.workload, "point": cell.point, "repeat": cell.repeat}
        )
    )


def canonical(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """One text for one value: keys sorted, nothing between the tokens."""
    return msgspec.json.encode(value, order="sorted")
