"""A campaign from its first cell to its last: one configuration's server after the other."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from bench_runner.cells import traffic, why_not_fitting
from bench_runner.errors import BusyError, ServerError
from bench_runner.journal import Reason
from bench_runner.losses import Losses
from bench_runner.measure import failure, measure
from bench_runner.prompts import PromptMaker
from bench_runner.recorder import Recorder, Stopwatch
from bench_runner.refusals import draft_reserve
from bench_runner.server.cleanliness import stop_unit
from bench_runner.server.gpus import GpuWatch
from bench_runner.server.lifecycle import Server
from bench_runner.server.staging import bring_models

if TYPE_CHECKING:
    from bench_runner.decide import Task
    from bench_runner.live import Live
    from bench_runner.load import Progress
    from bench_runner.measure import Result
    from bench_runner.prepared import Prepared
    from bench_runner.quirks.registry import Quirks
    from bench_runner.server.cleanliness import Leftover
    from bench_runner.server.control import Control


class Runner:
    def __init__(  # noqa: PLR0913 - each is another part, named by the caller
        self,
        prepared: Prepared,
        tasks: list[Task],
        *,
        control: Control,
        recorder: Recorder,
        live: Live,
        quirks: Quirks,
        deadline: datetime | None = None,
    ) -> None:
        self.deadline = deadline
        self.plan = prepared.plan
        self.deployments = prepared.deployments
        self.tasks = tasks
        self.control = control
        self.recorder = recorder
        self.live = live
        self._texts: dict[tuple[str, int], str] = {}  # shared: configurations get the same prompts
        self._stop_asked = False
        self._starting = False
        self._losses = Losses(recorder, live, quirks)
        self._gpus = GpuWatch()
        self._ports_kept: dict[int, str] = {}

    def ask_to_stop(self) -> bool:
        """Stop before the next cell. True when nothing would be cut short by stopping right now."""
        self._stop_asked = True
        return self._starting

    def _stop_if_asked(self) -> None:
        if self._stop_asked:
            raise asyncio.CancelledError

    def _time_is_up(self) -> bool:
        if self.deadline is None or datetime.now(timezone.utc) < self.deadline:
            return False
        if self.live.left is None:
            at = self.deadline.isoformat(timespec="minutes")
            self.live.left = Reason("deadline", f"not begun before the deadline, {at}; run again to go on")
        return True

    async def run(self) -> None:
        """Measure what is to be measured. Raises for what no other configuration could get past."""
        self.recorder.close_interrupted([task for task in self.tasks if task.decision.action == "run"])
        for task in self.tasks:
            if task.decision.action == "skip" and not task.decision.recorded:
                self.recorder.skipped(task, task.decision.reasons)
        self.live.changed()
        self.live.write()
        to_run = [task for task in self.tasks if task.decision.action == "run"]
        if not to_run:
            return
        await self._require_clean_node()
        ticking = asyncio.ensure_future(self.live.tick())
        try:
            # One after the other as in the plan: a configuration comes again where repeats are rounds.
            for configuration, together in groupby(to_run, key=lambda task: task.cell.configuration):
                self._stop_if_asked()
                if self._time_is_up():
                    break
                # A probe first: the others wait for how it ends.
                waiting = sorted(together, key=lambda task: task.decision.probes is None)
                if not self._losses.skip_lost(configuration, waiting):
                    await self._run_configuration(configuration, waiting)
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)

    async def _require_clean_node(self) -> None:
        """No server may run beside the measured one. Our own, left by a killed runner, is stopped."""
        for name, deployment in self.deployments.items():
            state = await self.control.show(name)
            if not state.is_up:
                continue
            ours = self.recorder.history.left_running(
                name,
                boot_id=self.recorder.journal.boot_id,
                invocation_id=state.identity.invocation_id,
            )
            if not ours:
                raise BusyError(
                    f"{deployment.unit} is running and this campaign did not start it; it would disturb "
                    f"every measurement. Stop it first: systemctl stop {deployment.unit}"
                )
            await stop_unit(self.control, name)
            self.recorder.event("server_stopped", configuration=name, detail={"left_by": "an earlier run"})

    async def _run_configuration(self, configuration: str, waiting: list[Task]) -> None:
        first = waiting[0]
        self._starting = True
        try:
            await self._bring_models(configuration, first)
            self.live.phase(first, "server_starting")
            server = Server(
                self.deployments[configuration],
                self.control,
                self.plan,
                gpus=self._gpus,
                on_note=self.live.note,
            )
            looked = await self._preflight(server)
        except ServerError as exc:
            self._starting = False
            await self._losses.lost(None, waiting, exc)
            return
        try:
            await self._start(server, first, looked)
            self._starting = False
            await self._measure_all(server, waiting)
        except ServerError as exc:
            await self._losses.lost(server, waiting, exc)
        finally:
            self._starting = False
            self.live.phase(first, "server_stopping")
            watch = Stopwatch()
            left = await server.stop()
            self._remember(server, left)
            detail: dict[str, Any] = {"seconds": round(watch.seconds, 3)}
            if left:
                detail["left"] = msgspec.to_builtins(left)
            self.recorder.event("server_stopped", configuration=configuration, detail=detail)

    async def _bring_models(self, configuration: str, first: Task) -> None:
        """No engine runs now, so those of the last configuration may go where there is no room for both."""

        def note(how_far: str | None) -> None:
            if not noted:
                self.live.phase(first, "staging")
            noted.append(True)
            self.live.note(how_far)

        noted: list[bool] = []
        watch = Stopwatch()
        found = await bring_models(self.control, configuration, note)
        if found is None:
            return
        told = {key: found.get(key) for key in ("summary", "models", "removed", "freed_bytes")}
        detail = {"seconds": round(watch.seconds, 3), **told}
        self.recorder.event("models_staged", configuration=configuration, detail=detail)
        if found.get("removed"):
            self.live.warn(f"models switched for {configuration}: {found.get('summary')}")

    async def _preflight(self, server: Server) -> dict[str, Any]:
        """What an earlier server of ours left stops this configuration; what isn't ours stops the run."""
        try:
            return await server.preflight()
        except BusyError as exc:
            kept = self._ports_kept.get(server.port)
            if kept is None:
                raise
            raise ServerError("port_kept", kept) from exc

    def _remember(self, server: Server, left: list[Leftover]) -> None:
        for each in left:
            self.live.warn(f"{each.code}: {each.detail}")
            if each.code == "port_kept":
                self._ports_kept[server.port] = each.detail

    async def _start(self, server: Server, first: Task, looked: dict[str, Any]) -> None:
        configuration = server.deployment.configuration
        self.recorder.event("server_starting", configuration=configuration, detail={"preflight": looked})
        watch = Stopwatch()
        await server.start()
        loaded_s = watch.seconds
        self.live.phase(first, "canary")
        speed = await server.canary(self._prompts(server))
        self.recorder.event(
            "server_ready",
            configuration=configuration,
            detail={
                "seconds": round(loaded_s, 3),
                "listening_s": round(server.listening_s or 0.0, 3),
                "canary_tps": round(speed, 3),
                "identity": msgspec.to_builtins(server.identity),
                "served": msgspec.to_builtins(server.engine.served),
            },
        )

    async def _measure_all(self, server: Server, waiting: list[Task]) -> None:
        """Cells in order. `waiting` shrinks as they get their status, so that a caller knows what is left."""
        while waiting:
            self._stop_if_asked()
            if self._time_is_up():
                return
            task = waiting[0]
            unfit = why_not_fitting(
                self.plan,
                task.cell,
                server.engine.served.context_tokens,
                draft_tokens=draft_reserve(server.deployment.flags),
            )
            if unfit:
                self.recorder.skipped(task, [Reason("does_not_fit_served", f"the server says: {unfit}")])
                waiting.pop(0)
                continue
            result = await self._measure_one(server, task)
            waiting.pop(0)
            self.live.cell_done()
            if result.status == "crashed":
                self._losses.crashed(server, task, waiting, result.evidence)
                return
            if result.degraded:
                self._losses.degraded(server, task, waiting)
                return

    async def _measure_one(self, server: Server, task: Task) -> Result:
        watch = Stopwatch()
        started_at = self.recorder.started(task)
        self.live.changed()

        def on_phase(phase: str, progress: Progress | None) -> None:
            self.live.phase(task, phase, progress)

        try:
            result = await measure(self.plan, task.cell, server, self._prompts(server), on_phase=on_phase)
        except asyncio.CancelledError:
            reason = Reason("stopped", "the runner was told to stop (SIGTERM)")
            planned = traffic(self.plan, task.cell.workload, task.cell.point).requests
            result = failure("interrupted", [reason], planned=planned)
            self.recorder.ended(task, result, started_at=started_at, duration_s=watch.seconds)
            raise
        except ServerError as exc:
            result = failure("crashed", [Reason(exc.code, exc.detail)], evidence=await server.evidence())
        self.recorder.ended(
            task,
            result,
            started_at=started_at,
            duration_s=watch.seconds,
            observed={**_observed(server), **({"client": result.client} if result.client else {})},
            learned=self._losses.learned(server, task, result),
        )
        return result

    def _prompts(self, server: Server) -> PromptMaker:
        return PromptMaker(self.plan.seed, server.engine.tokens, kept=self._texts)


def _observed(server: Server) -> dict[str, Any]:
    """What only the running server could tell; recorded with the cell."""
    served = msgspec.to_builtins(server.engine.served)
    return {
        "served": served,
        "server_identity": msgspec.to_builtins(server.identity),
        "receive_stamps": server.receiver.stamps,
    }
