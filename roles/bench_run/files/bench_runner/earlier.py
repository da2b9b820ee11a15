"""How long cells and loads took before, in all campaigns of the node: what a forecast is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bench_runner.errors import BenchError
from bench_runner.journal import read_events

if TYPE_CHECKING:
    from pathlib import Path


class PastFingerprint(Struct, frozen=True):
    identity: dict[str, Any]


class PastCell(Struct, frozen=True, kw_only=True):
    """The part of a cell's file that tells of its time."""

    configuration: str
    workload: str
    point: int
    status: str
    duration_s: float
    content_hash: str
    fingerprint: PastFingerprint


class Earlier(Struct, frozen=True, kw_only=True):
    cells: list[PastCell]
    loads_s: dict[str, list[float]]  # by configuration: from the start to the end of its canary


def read_earlier(root: Path) -> Earlier:
    """All good cells below the node's folder of campaigns. What can't be read makes a poorer forecast."""
    cells: list[PastCell] = []
    loads_s: dict[str, list[float]] = {}
    for campaign in _folders(root):
        for folder in (campaign / "cells", campaign / "superseded"):
            cells += _cells(folder)
        for configuration, seconds in _loads(campaign / "journal.jsonl"):
            loads_s.setdefault(configuration, []).append(seconds)
    return Earlier(cells=cells, loads_s=loads_s)


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def _cells(folder: Path) -> list[PastCell]:
    found = []
    for path in folder.glob("[!.]*.json"):
        try:
            cell = _DECODER.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            continue
        if cell.status == "ok":
            found.append(cell)
    return found


def _loads(journal: Path) -> list[tuple[str, float]]:
    try:
        events = read_events(journal)
    except BenchError:
        return []
    return [
        (event.configuration, float(seconds))
        for event in events
        if event.event == "server_ready"
        and event.configuration
        and isinstance(seconds := (event.detail or {}).get("seconds"), (int, float))
    ]


_DECODER = msgspec.json.Decoder(PastCell)
