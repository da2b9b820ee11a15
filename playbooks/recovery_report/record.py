"""The record of a run: what each node reported, and the file it is kept in."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

SCHEMA = "recover-and-bench/recovery"
SCHEMA_VERSION = 1


def merge(into: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Merge `more` into `into` in place: mappings by key, lists by appending, other values by replacing."""
    for key, value in more.items():
        present = into.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            merge(present, value)
        elif isinstance(present, list) and isinstance(value, list):
            present.extend(value)
        else:
            # A copy, so that a later merge never changes the task result the value came from.
            into[key] = json.loads(json.dumps(value))
    return into


class Record:
    """Everything a run has to say at its end. Times are UTC in ISO 8601."""

    def __init__(self, *, started_at: str, command: str) -> None:
        self.started_at = started_at
        self.command = command
        self.nodes: dict[str, dict[str, Any]] = {}
        self.problems: list[dict[str, str]] = []
        self.lines: list[tuple[str, str, str]] = []
        # How many tasks changed something, by node; nodes without one are left out.
        self.changed: dict[str, int] = {}

    def add(self, node: str, recovery: dict[str, Any]) -> None:
        merge(self.nodes.setdefault(node, {}), recovery)

    def problem(self, node: str, stage: str, task: str, message: str) -> None:
        self.problems.append({"node": node, "stage": stage, "task": task, "message": message})

    def line(self, stage: str, node: str, text: str) -> None:
        """Keep a node's line for a stage; a later line of the same stage is said in its place."""
        kept = [entry for entry in self.lines if entry[:2] != (stage, node)]
        self.lines = [*kept, (stage, node, text)]

    def document(self, *, outcome: str, ended_at: str, stages: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the content of recovery.json (collector/schemas/recovery.schema.json)."""
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "started_at": self.started_at,
            "ended_at": ended_at,
            "outcome": outcome,
            "command": self.command,
            "stages": stages,
            "changed": self.changed,
            "nodes": self.nodes,
            "problems": self.problems,
            "lines": [{"stage": stage, "node": node, "text": text} for stage, node, text in self.lines],
        }


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, even after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
