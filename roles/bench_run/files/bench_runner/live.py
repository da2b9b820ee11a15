"""Keeps status.json and STATUS.md up to date: whole after each event, the current line once a second."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from bench_runner.files import write_whole
from bench_runner.journal import utc_now
from bench_runner.quirks.notes import in_summary, notes
from bench_runner.status import (
    STATUS_VERSION,
    Current,
    Status,
    as_text,
    counts,
    held_back,
    standings,
    summary,
    todos,
)

if TYPE_CHECKING:
    from bench_runner.decide import Task
    from bench_runner.history import History
    from bench_runner.journal import Reason
    from bench_runner.load import Progress
    from bench_runner.prepared import Prepared
    from bench_runner.quirks.notes import Note
    from bench_runner.quirks.registry import Quirks
    from bench_runner.records import Folder
    from bench_runner.status import Standing

TICK_S = 1.0


class Live:
    def __init__(  # noqa: PLR0913 - each is another part, named by the caller
        self,
        folder: Folder,
        prepared: Prepared,
        tasks: list[Task],
        history: History,
        *,
        run: str,
        quirks: Quirks,
    ) -> None:
        self.quirks = quirks
        self.left: Reason | None = None  # why the cells that are pending at the end were not begun
        self.folder = folder
        self.plan = prepared.plan
        self.node = prepared.environment.node
        self.tasks = tasks
        self.history = history
        self.run = run
        self.kept = sum(1 for task in tasks if task.decision.action == "keep")
        self.state = "running"
        self._message: str | None = None
        self._task: Task | None = None
        self._phase = ""
        self._progress: Progress | None = None
        self._detail: str | None = None
        self._warnings: list[str] = []
        self._phase_at = ""
        self._phase_s = 0.0
        self._listed: msgspec.Raw | None = None
        self._noted = msgspec.Raw(b"[]")
        self._counted: dict[str, int] = {}
        self._started_s = time.monotonic()
        self._measured = 0
        self._measured_s = 0.0  # from the start to the end of the last cell
        self._lock = threading.Lock()  # ticks write from a thread of their own

    def phase(self, task: Task, phase: str, progress: Progress | None = None) -> None:
        self._task, self._phase, self._progress, self._detail = task, phase, progress, None
        self._phase_at, self._phase_s = utc_now(), time.monotonic()
        self.write()

    def note(self, detail: str | None) -> None:
        """How far the phase is, in words; written at once, as nothing is measured while a server loads."""
        if detail != self._detail:
            self._detail = detail
            self.changed()
            self.write()

    def warn(self, sentence: str) -> None:
        """Something that no cell carries; it stands in the run's last word."""
        self._warnings.append(sentence)

    def changed(self) -> None:
        """An event was added to the history: what is derived from it is derived anew."""
        self._listed = None

    def cell_done(self) -> None:
        self._measured += 1
        self._measured_s = time.monotonic() - self._started_s
        self.changed()

    def end(self, state: str, message: str | None = None) -> str:
        """The last word of this run; the message is the summary unless something went wrong."""
        self.state = state
        self._task = None
        found = standings(self.tasks, self.history, left=self.left)
        ending = in_summary(self._notes(found))
        said = message or summary(found, run=self.run, kept=self.kept) + ending
        self._message = "; ".join([said, *self._warnings])
        self.changed()
        self.write(durable=True)
        return self._message

    def write(self, *, durable: bool = False) -> None:
        """The todo list is encoded once an event, not once a tick: ticks fall into measurements."""
        with self._lock:
            self._write(durable=durable)

    def _write(self, *, durable: bool) -> None:
        whole = self._listed is None
        current = self._current()
        if whole or self._listed is None:
            running = self._task.cell.name if self._task else None
            found = standings(self.tasks, self.history, current=running, left=self.left)
            noted = self._notes(found)
            self._noted = msgspec.Raw(msgspec.json.encode(noted))
            listed = todos(found, baseline=self.plan.baseline, current=running)
            self._listed = msgspec.Raw(msgspec.json.encode(listed))
            self._counted = counts(found)
        shown = Status(
            schema="recover-and-bench/status",
            schema_version=STATUS_VERSION,
            campaign=self.plan.name,
            node=self.node,
            state=self.state,
            updated_at=utc_now(),
            run=self.run,
            message=self._message or (current.sentence() if current else "starting"),
            current=current,
            counts=self._counted,
            kept=self.kept,
            todos=self._listed,
            quirks=self._noted,
        )
        write_whole(self.folder.status, msgspec.json.encode(shown) + b"\n", durable=durable)
        if whole:
            shown.todos, shown.quirks = listed, noted
            write_whole(self.folder.status_text, as_text(shown).encode(), durable=durable)

    def _notes(self, found: list[Standing]) -> list[Note]:
        held = held_back(found)
        return notes(self.quirks, self.tasks, campaign=self.plan.name, run=self.run, held=held)

    async def tick(self) -> None:
        """Runs beside the campaign until it is cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            await asyncio.to_thread(self.write)

    def _current(self) -> Current | None:
        task = self._task
        if task is None:
            return None
        progress = self._progress
        rate = None
        if progress and progress.started_ns and progress.completion_tokens:
            rate = progress.completion_tokens / ((time.monotonic_ns() - progress.started_ns) / 1e9)
        return Current(
            cell=task.cell.name,
            title=task.cell.title,
            position=task.position,
            total=len(self.tasks),
            phase=self._phase,
            started_at=self._phase_at,
            elapsed_s=round(time.monotonic() - self._phase_s, 1),
            remaining_s=self._remaining_s(),
            output_tps=round(rate, 2) if rate else None,
            requests_done=progress.done if progress else None,
            requests_planned=progress.planned if progress else None,
            detail=self._detail,
        )

    def _remaining_s(self) -> float | None:
        to_run = sum(1 for task in self.tasks if task.decision.action == "run")
        elapsed_s = time.monotonic() - self._started_s
        return remaining_s(self._measured, to_run, measured_s=self._measured_s, elapsed_s=elapsed_s)


def remaining_s(measured: int, to_run: int, *, measured_s: float, elapsed_s: float) -> float | None:
    """Seconds left by the pace of this run's finished cells, loads of servers included.

    Unknown until there is one. It falls while a cell runs, and is put right at the cell's end.
    """
    if not measured:
        return None
    left_s = measured_s / measured * max(to_run - measured, 0)
    return round(max(left_s - (elapsed_s - measured_s), 0.0), 1)
