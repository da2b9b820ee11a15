"""The plan of a campaign, as far as the collector needs it: which cells were asked for, in which order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import msgspec
import yaml
from msgspec import Meta, Struct

from collector.records import Name, Positive, Workload  # noqa: TC001 - msgspec reads them at run time

if TYPE_CHECKING:
    from pathlib import Path


class UnreadablePlanError(Exception):
    """The plan file is there but makes no sense."""


class _WorkloadPart(Struct, frozen=True):
    points: tuple[Positive, ...]


class _PlanFile(Struct, frozen=True):
    """What is read of plan.yml; its other keys are the runner's business."""

    configurations: Annotated[tuple[Name, ...], Meta(min_length=1)]
    workloads: dict[Workload, _WorkloadPart]
    baseline: Name | None = None
    repeats: Positive = 1


@dataclass(frozen=True)
class PlannedCell:
    """A cell that was asked for."""

    configuration: str
    workload: Workload
    point: int
    repeat: int

    @property
    def name(self) -> str:
        return f"{self.configuration}.{self.workload}.{self.point}.r{self.repeat}"


@dataclass(frozen=True)
class Plan:
    """Configurations and points in the order of the plan."""

    configurations: tuple[str, ...]
    workloads: dict[Workload, tuple[int, ...]]
    repeats: int
    baseline: str | None

    @cached_property
    def cells(self) -> tuple[PlannedCell, ...]:
        return tuple(
            PlannedCell(configuration, workload, point, repeat)
            for configuration in self.configurations
            for workload, points in self.workloads.items()
            for point in points
            for repeat in range(1, self.repeats + 1)
        )


def read_plan(path: Path) -> Plan:
    try:
        content = yaml.safe_load(path.read_bytes())
        plan = msgspec.convert(content, _PlanFile)
    except (yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as exc:
        raise UnreadablePlanError(f"plan.yml: {exc}") from exc
    return Plan(
        configurations=tuple(dict.fromkeys(plan.configurations)),
        workloads={name: tuple(sorted(set(part.points))) for name, part in plan.workloads.items()},
        repeats=plan.repeats,
        baseline=plan.baseline,
    )
