"""A section is what may stand in one table: one campaign, one environment, all its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, get_args

from collector.coverage import Coverage, cover
from collector.records import Workload

if TYPE_CHECKING:
    from collector.campaigns import Campaign
    from collector.environments import Environment
    from collector.merge import Merged

WORKLOADS: tuple[Workload, ...] = get_args(Workload)


@dataclass(frozen=True)
class Section:
    """The nodes' coverages of one campaign in one environment."""

    campaign: str
    environment: Environment | None
    coverages: tuple[Coverage, ...]
    alone: bool = True
    """Whether no other environment has results, so that its name needs no saying."""

    @property
    def title(self) -> str:
        nodes = ", ".join(self.nodes)
        suffix = f", environment {self.environment.name}" if self.environment and not self.alone else ""
        return f"{self.campaign} on {nodes}{suffix}"

    @property
    def slug(self) -> str:
        return f"{self.campaign}-{self.environment.name}" if self.environment else self.campaign

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(coverage.campaign.node for coverage in self.coverages)

    @cached_property
    def configurations(self) -> tuple[str, ...]:
        """In the order of the plans, the baseline first."""
        names = [slot.planned.configuration for coverage in self.coverages for slot in coverage.slots]
        return tuple(sorted(dict.fromkeys(names), key=lambda name: name not in self.baselines))

    @cached_property
    def baselines(self) -> frozenset[str]:
        planned = {c.campaign.plan.baseline for c in self.coverages if c.campaign.plan}
        found = {
            slot.row.cell.configuration
            for coverage in self.coverages
            for slot in coverage.slots
            if slot.row and slot.row.cell.baseline
        }
        return frozenset({name for name in planned if name is not None} or found)

    @cached_property
    def workloads(self) -> dict[Workload, tuple[int, ...]]:
        """Each workload that was asked for, with its points in order."""
        points: dict[Workload, set[int]] = {name: set() for name in WORKLOADS}
        for coverage in self.coverages:
            for slot in coverage.slots:
                points[slot.planned.workload].add(slot.planned.point)
        return {name: tuple(sorted(found)) for name, found in points.items() if found}


def sections(merged: Merged) -> tuple[Section, ...]:
    """Cut everything merged into what may be compared, newest environment of a campaign first."""
    found: list[Section] = []
    for name in sorted({campaign.name for campaign in merged.campaigns}):
        used = {row.environment for row in merged.current if row.cell.campaign == name}
        environments = [env for env in reversed(merged.environments) if env.name in used]
        if environments:
            found.extend(_section(merged, name, environment) for environment in environments)
        else:
            found.append(_section(merged, name, None))
    return tuple(found)


def _section(merged: Merged, name: str, environment: Environment | None) -> Section:
    wanted = environment.name if environment else None
    coverages = tuple(
        cover(merged, campaign, environment=wanted)
        for campaign in merged.campaigns
        if campaign.name == name and _belongs(merged, campaign, wanted)
    )
    return Section(name, environment, coverages, alone=len(merged.environments) <= 1)


def _belongs(merged: Merged, campaign: Campaign, environment: str | None) -> bool:
    """Whether the node has a cell in the environment, or none in any (then it has only holes to show)."""
    found = {
        row.environment
        for row in merged.current
        if (row.cell.node, row.cell.campaign) == (campaign.node, campaign.name)
    }
    return environment is None or environment in found or found <= {None}
