"""What the journal says of each cell, folded: the last word, the attempts it took, what was left open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from bench_runner.journal import Reason  # noqa: TC001 - msgspec reads types when it runs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench_runner.journal import Event

# Attempts that tell of the cell itself. An interruption doesn't: it would have ended a good one too.
_COUNTED = {"partial", "failed", "crashed"}


class CellHistory(Struct):
    """Of one cell under one content hash."""

    status: str | None = None
    reasons: list[Reason] = field(default_factory=list)
    attempts: int = 0
    started_at: str | None = None  # set while a start has no end
    file: str | None = None
    sha256: str | None = None
    blocked_by: str | None = None
    run: str = ""  # the run of its last event

    @property
    def is_open(self) -> bool:
        return self.started_at is not None


class History:
    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._cells: dict[tuple[str, str], CellHistory] = {}
        self._names: set[str] = set()
        self._servers: dict[str, Event] = {}  # the last event of a start without a stop, by configuration
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        if event.cell and event.content_hash:
            self._add_cell(event, self._cells.setdefault((event.cell, event.content_hash), CellHistory()))
            self._names.add(event.cell)
        elif event.configuration:
            if event.event in {"server_starting", "server_ready"}:
                self._servers[event.configuration] = event
            elif event.event == "server_stopped":
                self._servers.pop(event.configuration, None)

    def cell(self, name: str, content_hash: str) -> CellHistory:
        return self._cells.get((name, content_hash), CellHistory())

    def knows(self, name: str) -> bool:
        """Whether the cell was ever touched, under any content hash."""
        return name in self._names

    def left_running(self, configuration: str, *, boot_id: str, invocation_id: str) -> bool:
        """Whether the server that runs is the one this campaign started and never stopped (it was killed)."""
        event = self._servers.get(configuration)
        if event is None or event.boot_id != boot_id:
            return False
        known = ((event.detail or {}).get("identity") or {}).get("invocation_id")
        return known in {None, invocation_id}  # None: killed before the server was ready

    def _add_cell(self, event: Event, cell: CellHistory) -> None:
        cell.run = event.run
        if event.event == "cell_started":
            cell.started_at = event.at
            return
        cell.started_at = None
        cell.reasons = event.reasons or []
        cell.file, cell.sha256 = event.file, event.sha256
        cell.blocked_by = (event.detail or {}).get("blocked_by")
        if event.event == "cell_skipped":
            cell.status = "skipped"
            return
        cell.status = event.status
        cell.attempts += event.status in _COUNTED
