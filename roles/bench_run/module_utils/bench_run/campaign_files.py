"""What the runner leaves in a campaign's folder, read by those who follow it."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def read_status(folder: Path) -> dict[str, Any]:
    """The status file; empty where there is none. It is replaced in one step, so it's never a part."""
    try:
        found = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_events(folder: Path, since_seq: int = 0) -> list[dict[str, Any]]:
    """The journal's whole lines after a number; a last line that is still being written doesn't count."""
    try:
        lines = (folder / "journal.jsonl").read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    events = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the runner repairs and says so
        if isinstance(event, dict) and int(event.get("seq", 0)) > since_seq:
            events.append(event)
    return events


def last_seq(folder: Path) -> int:
    return max((int(event.get("seq", 0)) for event in read_events(folder)), default=0)


def waited_s(events: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds that were the engine's, the measurement's own, and the copies' between configurations."""
    copy_s, load_s, measure_s = 0.0, 0.0, 0.0
    starting: datetime | None = None  # an annotation only: Python 3.9 doesn't evaluate it
    for event in events:
        kind = event.get("event")
        detail = event.get("detail") or {}
        if kind == "server_starting":
            starting = _time(event)
        elif kind in {"server_ready", "server_crashed", "server_stopped"}:
            if starting is not None:
                load_s += (_time(event) - starting).total_seconds()
                starting = None
            if kind == "server_stopped":
                load_s += float(detail.get("seconds", 0.0))
        elif kind == "models_staged":
            copy_s += float(detail.get("seconds", 0.0))
        elif kind == "cell_ended" and starting is None:
            measure_s += float(detail.get("duration_s", 0.0))
    copied = {"copy": round(copy_s, 1)} if copy_s else {}
    return {**copied, "engine_load": round(load_s, 1), "measure": round(measure_s, 1)}


def record(status: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """What the run's record keeps of a campaign."""
    measured = [event for event in events if event.get("event") == "cell_ended"]
    not_ok = [
        {"cell": todo["cell"], "status": todo["status"], "reason": todo["reason"]}
        for todo in status.get("todos", [])
        if todo["status"] in {"failed", "skipped"}
    ]
    return {
        "bench": {
            "campaign": status.get("campaign"),
            "state": status.get("state"),
            "counts": status.get("counts", {}),
            "kept": status.get("kept", 0),
            "measured": len(measured),
            "not_ok": not_ok,
        }
    }


def not_ok(status: dict[str, Any]) -> int:
    """Cells that have no number, apart from those that were skipped on purpose or left for later."""
    counts = status.get("counts", {})
    return sum(number for name, number in counts.items() if name not in {"ok", "skipped", "pending"})


def is_done(status: dict[str, Any]) -> bool:
    """Whether the last run ended with every cell measured or skipped on purpose."""
    counts = status.get("counts", {})
    return status.get("state") == "finished" and bool(counts) and set(counts) <= {"ok", "skipped"}


def progress(status: dict[str, Any]) -> str:
    """One line for the operator: what the runner is doing, and how much is left."""
    message = str(status.get("message", "starting"))
    left = (status.get("current") or {}).get("remaining_s")
    return f"{message}, about {left:.0f} s left" if isinstance(left, (int, float)) and left > 0 else message


def _time(event: dict[str, Any]) -> datetime:
    return datetime.strptime(event["at"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
