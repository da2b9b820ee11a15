"""A server that can't be measured: which cell carries it, which ones wait for that one, what is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench_runner.journal import Reason
from bench_runner.measure import failure, in_words
from bench_runner.recorder import Recorder, Stopwatch

if TYPE_CHECKING:
    from bench_runner.decide import Task
    from bench_runner.errors import ServerError
    from bench_runner.live import Live
    from bench_runner.measure import Result
    from bench_runner.quirks.registry import Quirks
    from bench_runner.server.lifecycle import Server


class Loss(Struct, frozen=True, kw_only=True):
    """Why the cells of a configuration can't be measured now; `blocked_by` is the cell that they wait for."""

    code: str
    detail: str
    blocked_by: str | None = None


class Losses:
    def __init__(self, recorder: Recorder, live: Live, quirks: Quirks) -> None:
        self.recorder = recorder
        self.live = live
        self.quirks = quirks
        self._known: dict[str, Loss] = {}  # by configuration

    def skip_lost(self, configuration: str, waiting: list[Task]) -> bool:
        """Cells of a later round, where the configuration was lost in an earlier one."""
        loss = self._known.get(configuration)
        if loss is not None:
            self._skip(configuration, waiting, loss)
        return loss is not None

    async def lost(self, server: Server | None, waiting: list[Task], exc: ServerError) -> None:
        """The server could not be measured at all: the first cell carries the failure, the others wait."""
        task = waiting.pop(0)
        watch = Stopwatch()
        started_at = self.recorder.started(task)
        evidence = await server.evidence() if server and server.identity else None
        status = "crashed" if exc.crashed else "failed"
        cause = f"; {in_words(evidence)}" if exc.crashed and evidence else ""
        result = failure(status, [Reason(exc.code, f"{exc.detail}{cause}")], evidence=evidence)
        self.recorder.ended(task, result, started_at=started_at, duration_s=watch.seconds)
        self.live.cell_done()
        if exc.crashed and server:
            self.crashed(server, task, waiting, evidence)
        elif exc.code == "server_degraded" and server:
            self.degraded(server, task, waiting)
        else:
            detail = f"{task.cell.title}: {exc.detail}"
            loss = Loss(code=exc.code, detail=detail, blocked_by=task.cell.name)
            self._skip(task.cell.configuration, waiting, loss)

    def crashed(
        self, server: Server, task: Task, waiting: list[Task], evidence: dict[str, Any] | None
    ) -> None:
        signature = (evidence or {}).get("signature", "unknown")
        quirk = self.quirks.crashed(
            signature,
            task.cell,
            server.deployment,
            campaign=self.recorder.plan.name,
            run=self.recorder.journal.run,
        )
        self.recorder.event(
            "server_crashed",
            configuration=server.deployment.configuration,
            detail={
                "in": task.cell.name,
                "signature": signature,
                **({"quirk": {"name": quirk.name, "state": quirk.state}} if quirk else {}),
            },
        )
        if quirk and quirk.state == "active":
            loss = Loss(code="quirk", detail=f"{quirk.name}: {quirk.reason}")
        else:
            detail = f"the server died in {task.cell.title}: {signature}"
            loss = Loss(code="server_crashed", detail=detail, blocked_by=task.cell.name)
        self._skip(task.cell.configuration, waiting, loss)

    def degraded(self, server: Server, task: Task, waiting: list[Task]) -> None:
        self.recorder.event(
            "server_degraded",
            configuration=server.deployment.configuration,
            detail={"in": task.cell.name},
        )
        detail = f"the server could not generate any more in {task.cell.title}"
        loss = Loss(code="server_degraded", detail=detail, blocked_by=task.cell.name)
        self._skip(task.cell.configuration, waiting, loss)

    def learned(self, server: Server, task: Task, result: Result) -> dict[str, Any] | None:
        """A probe that was measured retires its quirk here."""
        if task.decision.probes is None or result.status not in {"ok", "partial"}:
            return None
        entry = self.quirks.went_well(
            task.decision.probes,
            task.cell,
            server.deployment,
            campaign=self.recorder.plan.name,
            run=self.recorder.journal.run,
        )
        return {"quirk": {"name": entry.name, "state": entry.state}} if entry else None

    def _skip(self, configuration: str, waiting: list[Task], loss: Loss) -> None:
        """The configuration's cells that are left, in this round and in those to come."""
        self._known[configuration] = loss
        for task in waiting:
            self.recorder.skipped(task, [Reason(loss.code, loss.detail)], blocked_by=loss.blocked_by)
        waiting.clear()
        self.live.changed()
