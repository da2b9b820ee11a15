"""What a step says of itself, in the words that the playbooks' callback understands."""

from __future__ import annotations

import time
from typing import Any


class Step:
    """A rung of the repair ladder, timed from its making to its report."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = time.monotonic()

    def report(self, outcome: str, *, changed: bool, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        seconds = round(time.monotonic() - self.started, 2)
        entry = {"step": self.name, "changed": changed, "seconds": seconds, "outcome": outcome, **more}
        return {"progress": f"{self.name}: {outcome}", "recovery": {"steps": [entry]}}


def joined(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Several steps of one module call as one report."""
    return {
        "progress": "; ".join(report["progress"] for report in reports),
        "recovery": {"steps": [entry for report in reports for entry in report["recovery"]["steps"]]},
    }


def showable(text: str) -> str:
    """Text for a diff: bytes that are no UTF-8 show as a replacement sign."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
