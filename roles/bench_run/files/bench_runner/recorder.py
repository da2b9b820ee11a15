"""Writes what happened in an order that a power cut can't harm: requests, cell file, journal line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench_runner.files import sha256_of, write_whole
from bench_runner.fingerprint import Fingerprint
from bench_runner.journal import Reason, utc_now
from bench_runner.measure import Result, failure
from bench_runner.records import CELL_VERSION, CellFile, encode_cell, set_aside, write_requests

if TYPE_CHECKING:
    from bench_runner.decide import Task
    from bench_runner.environment import Environment
    from bench_runner.history import History
    from bench_runner.journal import Journal
    from bench_runner.plan import Plan
    from bench_runner.records import FileRef, Folder


class Recorder:
    def __init__(
        self, folder: Folder, journal: Journal, history: History, plan: Plan, environment: Environment
    ) -> None:
        self.folder = folder
        self.journal = journal
        self.history = history
        self.plan = plan
        self.environment = environment

    def event(self, event: str, **fields: Any) -> None:  # noqa: ANN401 - Event's own types check them
        self.history.add(self.journal.append(event, **fields))

    def started(self, task: Task) -> str:
        """The cell's start, as the journal has it."""
        self.event(
            "cell_started",
            cell=task.cell.name,
            configuration=task.cell.configuration,
            content_hash=task.content_hash,
            detail={
                "attempt": task.attempt,
                "why": task.decision.why,
                **({"warning": task.decision.warning} if task.decision.warning else {}),
            },
        )
        return self.journal.events[-1].at

    def ended(  # noqa: PLR0913 - each is another part, named by the caller
        self,
        task: Task,
        result: Result,
        *,
        started_at: str,
        duration_s: float,
        observed: dict[str, Any] | None = None,
        learned: dict[str, Any] | None = None,
    ) -> None:
        """`observed` joins the fingerprint's recorded list: what only the running server could tell.

        `learned` is what the cell's end means for a quirk; it goes into the journal.
        """
        data = self._write(task, result, started_at=started_at, duration_s=duration_s, observed=observed)
        self.event(
            "cell_ended",
            cell=task.cell.name,
            configuration=task.cell.configuration,
            content_hash=task.content_hash,
            status=result.status,
            reasons=result.reasons,
            file=f"cells/{task.cell.name}.json",
            sha256=sha256_of(data),
            detail={"attempt": task.attempt, "duration_s": round(duration_s, 3), **(learned or {})},
        )

    def skipped(self, task: Task, reasons: list[Reason], *, blocked_by: str | None = None) -> None:
        """A hole that is there on purpose has a file too, so that whoever reads the folder knows why."""
        data = self._write(
            task, failure("skipped", reasons), started_at=utc_now(), duration_s=0.0, observed=None
        )
        self.event(
            "cell_skipped",
            cell=task.cell.name,
            configuration=task.cell.configuration,
            content_hash=task.content_hash,
            reasons=reasons,
            file=f"cells/{task.cell.name}.json",
            sha256=sha256_of(data),
            **({"detail": {"blocked_by": blocked_by}} if blocked_by else {}),
        )

    def close_interrupted(self, tasks: list[Task]) -> None:
        """Cells that an earlier runner started and never ended: killed, or the node went down."""
        for task in tasks:
            past = self.history.cell(task.cell.name, task.content_hash)
            if past.started_at is None:
                continue
            reason = Reason("interrupted", "the runner or its node ended in the middle of the cell")
            self.ended(task, failure("interrupted", [reason]), started_at=past.started_at, duration_s=0.0)

    def _write(
        self,
        task: Task,
        result: Result,
        *,
        started_at: str,
        duration_s: float,
        observed: dict[str, Any] | None,
    ) -> bytes:
        cell = task.cell
        set_aside(self.folder, cell.name)
        files: dict[str, FileRef] = {}
        if result.records:
            files["requests"] = write_requests(self.folder.requests(cell.name), result.records)
        known = task.fingerprint
        data = encode_cell(
            CellFile(
                schema="recover-and-bench/cell",
                schema_version=CELL_VERSION,
                campaign=self.plan.name,
                node=self.environment.node,
                host=self.environment.host,
                cell=cell.name,
                configuration=cell.configuration,
                baseline=cell.configuration == self.plan.baseline,
                workload=cell.workload,
                point=cell.point,
                point_unit=cell.point_unit,
                repeat=cell.repeat,
                attempt=task.attempt,
                status=result.status,
                reasons=result.reasons,
                started_at=started_at,
                ended_at=utc_now(),
                duration_s=round(duration_s, 3),
                content_hash=task.content_hash,
                fingerprint=Fingerprint(
                    identity=known.identity,
                    comparability=known.comparability,
                    recorded={**known.recorded, **(observed or {})},
                ),
                requests=result.counts,
                checks=result.checks,
                metrics=result.metrics,
                files=files,
                evidence=result.evidence,
            )
        )
        write_whole(self.folder.cell(cell.name), data)
        return data


class Stopwatch:
    """Seconds since it was made, on the clock that never steps."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started_s
