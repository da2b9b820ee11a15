"""From judged files to one truth: which file speaks for a cell, and in which environment it was measured."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collector.environments import Environment, canonical, group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from collector.campaigns import Campaign
    from collector.door import Judged
    from collector.records import Cell


@dataclass(frozen=True)
class Row:
    """A file whose content may be used. ``note`` says why one that is not current does not speak."""

    judged: Judged
    cell: Cell
    environment: str | None
    current: bool
    note: str = ""


@dataclass(frozen=True)
class Merged:
    """Everything that was pulled, judged."""

    campaigns: tuple[Campaign, ...]
    environments: tuple[Environment, ...]
    rows: tuple[Row, ...]
    refused: tuple[Judged, ...]

    @property
    def current(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.current)


def merge(campaigns: Sequence[Campaign]) -> Merged:
    """Judge duplicates and keep environments apart. Nothing is dropped: every file is a row or refused."""
    judged = [file for campaign in campaigns for file in campaign.files]
    usable = [(file, file.cell) for file in judged if file.cell is not None]
    environments = group(cell for _file, cell in usable)
    same_cell: defaultdict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for file, cell in usable:
        environment = environments.get(canonical(cell.fingerprint.comparability))
        name = environment.name if environment else None
        same_cell[cell.campaign, cell.node, cell.cell].append(Row(file, cell, name, current=True))
    rows = [row for candidates in same_cell.values() for row in _choose(candidates)]
    return Merged(
        campaigns=tuple(campaigns),
        environments=tuple(environments.values()),
        rows=tuple(sorted(rows, key=lambda row: (row.cell.campaign, row.cell.node, str(row.judged.path)))),
        refused=tuple(file for file in judged if file.cell is None),
    )


def _choose(candidates: list[Row]) -> Iterable[Row]:
    """Let one file speak for a cell in each environment: of the newest identity, the newest ok one."""
    by_environment: defaultdict[str | None, list[Row]] = defaultdict(list)
    for row in candidates:
        by_environment[row.environment].append(row)
    for rows in by_environment.values():
        newest_first = sorted(rows, key=_age, reverse=True)
        identity = newest_first[0].cell.content_hash
        equals = [row for row in newest_first if row.cell.content_hash == identity]
        winner = next((row for row in equals if row.cell.status == "ok"), equals[0])
        yield winner
        yield from (_set_aside(row, winner) for row in newest_first if row is not winner)


def _age(row: Row) -> tuple[str, int, str]:
    return (row.cell.ended_at, row.cell.attempt, str(row.judged.path))


def _set_aside(row: Row, winner: Row) -> Row:
    name = winner.judged.path.name
    if row.judged.sha256 == winner.judged.sha256:
        judged = replace(
            row.judged, verdict="duplicate", reason=f"the same content as {winner.judged.path.name}"
        )
        return replace(row, judged=judged, current=False, note="same content as the file that speaks")
    if row.cell.content_hash != winner.cell.content_hash:
        note = "another identity (engine, flags, model or workload) than the newest file of this cell"
    elif winner.cell.status == "ok" and row.cell.status != "ok":
        note = f"a good attempt is there: {name}, attempt {winner.cell.attempt}"
    else:
        note = f"a newer attempt is there: {name}, attempt {winner.cell.attempt}"
    return replace(row, current=False, note=note)
