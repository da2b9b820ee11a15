"""Opens a campaign's folder, decides what is to be done, runs it, and leaves the last word in status.json."""

from __future__ import annotations

import asyncio
import resource
import secrets
import signal
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from msgspec import Struct

from bench_runner import __version__
from bench_runner.deadline import deadline_at
from bench_runner.decide import Decider
from bench_runner.environment import boot_id
from bench_runner.errors import BenchError
from bench_runner.files import only_runner, remove_leftovers, require_usable, sha256_of
from bench_runner.history import History
from bench_runner.journal import Journal, read_events
from bench_runner.live import Live
from bench_runner.loops import run_in_loop
from bench_runner.prepared import Prepared, Wishes, prepare
from bench_runner.recorder import Recorder
from bench_runner.runner import Runner
from bench_runner.server.control import Control

if TYPE_CHECKING:
    from pathlib import Path

    from bench_runner.decide import Task
    from bench_runner.quirks.registry import Quirks
    from bench_runner.records import Folder


class Outcome(Struct, frozen=True, kw_only=True):
    state: str
    message: str


class Look(Struct, frozen=True, kw_only=True):
    """What a run would do now."""

    prepared: Prepared
    tasks: list[Task]
    quirks: Quirks


def look(folder: Folder, configurations: Path, wishes: Wishes | None = None) -> Look:
    """What a run would do now, without touching anything."""
    prepared = prepare(folder, configurations)
    history = History(read_events(folder.journal))
    decider = Decider(prepared, history, folder, wishes or Wishes())
    return Look(prepared=prepared, tasks=decider.tasks(), quirks=decider.quirks)


def run(folder: Folder, configurations: Path, control: Path, wishes: Wishes | None = None) -> Outcome:
    """One start of the runner. Raises a BenchError for what is wrong before anything ran."""
    prepared = prepare(folder, configurations)
    require_usable(folder.root)
    _allow_connections()
    # One lock for all campaigns of this node: two at once would falsify each other's times.
    with only_runner(folder.root.parent / ".runner.lock"):
        folder.cells.mkdir(exist_ok=True)
        remove_leftovers(folder.root)
        remove_leftovers(folder.cells)
        run_id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"
        journal = Journal(folder.journal, boot_id=boot_id(), run=run_id)
        try:
            return _run(folder, prepared, journal, Control(control), wishes or Wishes())
        finally:
            journal.close()


def _allow_connections() -> None:
    """Each client has one; the soft limit is 1024 by default, for programs that still use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run(folder: Folder, prepared: Prepared, journal: Journal, control: Control, wishes: Wishes) -> Outcome:
    history = History(journal.events)
    decider = Decider(prepared, history, folder, wishes)
    tasks, quirks = decider.tasks(), decider.quirks
    live = Live(folder, prepared, tasks, history, run=journal.run, quirks=quirks)
    new_skips = [task for task in tasks if task.decision.action == "skip" and not task.decision.recorded]
    to_run = [task for task in tasks if task.decision.action == "run"]
    if not to_run and not new_skips:
        return Outcome(state="finished", message=live.end("finished"))
    asked = wishes.deadline or prepared.plan.deadline
    deadline = deadline_at(asked, datetime.now(timezone.utc)) if asked else None
    recorder = Recorder(folder, journal, history, prepared.plan, prepared.environment)
    recorder.event(
        "run_started",
        detail={
            "runner": __version__,
            "plan_sha256": sha256_of(folder.plan.read_bytes()),
            "cells": len(tasks),
            "to_run": len(to_run),
            "kept": live.kept,
            **({"quick": True} if wishes.quick else {}),
            **({"deadline": deadline.isoformat(timespec="seconds")} if deadline else {}),
        },
    )
    runner = Runner(
        prepared, tasks, control=control, recorder=recorder, live=live, quirks=quirks, deadline=deadline
    )
    problem = _drive(runner)
    return _last_word(problem, recorder, live)


def _last_word(problem: BaseException | None, recorder: Recorder, live: Live) -> Outcome:
    state, message = _state_after(problem)
    try:
        said_more = {"message": message} if message else {}
        left = {"left": live.left.code} if live.left else {}
        recorder.event("run_ended", detail={"state": state, **said_more, **left})
        said = live.end(state, message)
    except (OSError, BenchError):
        if problem is None:
            raise
        said = message or state  # the disk that failed us can't take the last word either
    if problem is not None and not isinstance(problem, (BenchError, OSError, asyncio.CancelledError)):
        raise problem  # a fault of the runner itself: its traceback belongs in the unit's log
    return Outcome(state=state, message=said)


def _drive(runner: Runner) -> BaseException | None:
    """Run to the end, to SIGTERM, or after SIGUSR1 to the end of the running cell.

    A second signal doesn't hurry the cleaning up.
    """

    async def whole() -> None:
        task = asyncio.ensure_future(runner.run())
        loop = asyncio.get_running_loop()
        told: list[bool] = []

        def stop() -> None:
            if not told:
                told.append(True)
                task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGUSR1, lambda: stop() if runner.ask_to_stop() else None)
        await task

    try:
        run_in_loop(whole())
    except BaseException as exc:  # noqa: BLE001 - whatever ended the run belongs in its last word
        return exc
    return None


def _state_after(exc: BaseException | None) -> tuple[str, str | None]:
    """The status file's state, and its message where it isn't the summary."""
    if exc is None:
        return "finished", None
    if isinstance(exc, asyncio.CancelledError):
        return "stopped", None
    if isinstance(exc, BenchError):
        return "failed", str(exc)
    return "failed", f"{type(exc).__name__}: {exc}"
