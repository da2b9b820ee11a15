"""What lies under ``results/raw``: each campaign's plan, journal, status and judged cell files."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from collector.door import Judged, NotOursError, UnreadableError, judge_file, parse_json, require_known
from collector.plan import Plan, UnreadablePlanError, read_plan
from collector.records import (
    JOURNAL_SCHEMA_VERSION,
    STATUS_SCHEMA_VERSION,
    Event,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from collector.layout import Layout

FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Journal:
    """The readable events of a journal, and what is wrong with the rest of its lines."""

    events: tuple[Event, ...] = ()
    problems: tuple[str, ...] = ()

    @cached_property
    def written(self) -> dict[str, set[str]]:
        """The digests of every file that was written of a cell."""
        found: dict[str, set[str]] = {}
        for event in self.events:
            if event.cell is not None and event.sha256 is not None:
                found.setdefault(event.cell, set()).add(event.sha256)
        return found

    @cached_property
    def last_word(self) -> dict[str, Event]:
        """The latest event about each cell."""
        return {event.cell: event for event in self.events if event.cell is not None}


@dataclass(frozen=True)
class Campaign:
    """One campaign of one node, as far as it has been pulled."""

    node: str
    name: str
    folder: Path
    plan: Plan | None
    status: Status | None
    journal: Journal
    files: tuple[Judged, ...]
    problems: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.name} on {self.node}"


def scan(layout: Layout) -> tuple[Campaign, ...]:
    """Read everything that was pulled, in a fixed order."""
    return tuple(
        read_campaign(campaign, superseded=layout.superseded / node.name / campaign.name)
        for node in _folders(layout.raw)
        for campaign in _folders(node)
    )


def read_campaign(folder: Path, *, superseded: Path | None = None) -> Campaign:
    """Read one campaign's folder; what cannot be read becomes a problem in words, not an exception."""
    node, name = folder.parent.name, folder.name
    problems: list[str] = []
    plan = None
    try:
        plan = read_plan(folder / "plan.yml")
    except FileNotFoundError:
        problems.append("no plan.yml has been pulled")
    except UnreadablePlanError as exc:
        problems.append(str(exc))
    status = None
    try:
        status = read_status(folder / "status.json")
    except FileNotFoundError:
        problems.append("no status.json has been pulled")
    except (NotOursError, UnreadableError) as exc:
        problems.append(f"status.json: {exc}")
    journal = read_journal(folder / "journal.jsonl")
    problems.extend(f"journal.jsonl: {problem}" for problem in journal.problems)
    files = [judge_file(path, node=node, campaign=name) for path in _cell_files(folder / "cells")]
    for aside in (folder / "superseded", superseded):
        if aside is not None:
            paths = _cell_files(aside)
            files += [judge_file(path, node=node, campaign=name, superseded=True) for path in paths]
    files = [_against_journal(file, journal) for file in files]
    return Campaign(node, name, folder, plan, status, journal, tuple(files), tuple(problems))


def _against_journal(file: Judged, journal: Journal) -> Judged:
    """Refuse a file whose content the journal has no word of: someone changed it afterwards.

    A cell that is being written has its file before its line; a journal that was not pulled knows nothing.
    """
    if file.cell is None:
        return file
    written, last = journal.written.get(file.cell.cell), journal.last_word.get(file.cell.cell)
    if not written or file.sha256 in written or (last is not None and last.event == "cell_started"):
        return file
    reason = "the journal has other digests of this cell's file: it was changed after it was written"
    return replace(file, verdict="corrupt", reason=reason, cell=None)


def read_status(path: Path) -> Status:
    content = parse_json(path.read_bytes())
    if not isinstance(content, dict):
        raise NotOursError("no JSON object")
    require_known(content, schema="recover-and-bench/status", newest=STATUS_SCHEMA_VERSION)
    try:
        return msgspec.convert(content, Status)
    except msgspec.ValidationError as exc:
        raise UnreadableError(f"not as the schema says: {exc}") from exc


def read_journal(path: Path) -> Journal:
    """Read a journal up to its last whole line: a campaign that is running is writing the next one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Journal(problems=("has not been pulled",))
    *lines, _unfinished = data.split(b"\n")
    decoder = msgspec.json.Decoder(Event)
    events: list[Event] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        try:
            event = decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as exc:
            problems.append(f"line {number} {_what_is_wrong(line, exc)}")
            continue
        if events and event.seq != events[-1].seq + 1:
            problems.append(f"line {number} has the number {event.seq} after {events[-1].seq}")
        events.append(event)
    return Journal(tuple(events), tuple(problems))


def _what_is_wrong(line: bytes, exc: Exception) -> str:
    try:
        version = msgspec.json.decode(line)["schema_version"]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, IndexError):
        version = None
    if isinstance(version, int) and version > JOURNAL_SCHEMA_VERSION:
        return (
            f"has schema version {version}, the newest that this program reads is "
            f"{JOURNAL_SCHEMA_VERSION}: update the collector"
        )
    return f"cannot be read: {exc}"


def _folders(parent: Path) -> Iterator[Path]:
    if parent.is_dir():
        yield from sorted(p for p in parent.iterdir() if p.is_dir() and FOLDER_NAME.fullmatch(p.name))


def _cell_files(folder: Path) -> list[Path]:
    return sorted(
        p for p in folder.rglob("*.json") if p.is_file() and not p.is_symlink() and p.name[0] != "."
    )
