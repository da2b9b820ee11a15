"""The command line: run, plan, status, validate. Only this file prints and only this file exits."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import yaml

from bench_runner import __version__
from bench_runner.campaign import look, run
from bench_runner.errors import BenchError, PlanError
from bench_runner.plan_check import check_plan
from bench_runner.records import Folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_runner.decide import Task
    from bench_runner.history import History

EXIT_FINISHED = 0
EXIT_REFUSED = 2
EXIT_FAILED = 3
EXIT_STOPPED = 4
_EXITS = {"finished": EXIT_FINISHED, "failed": EXIT_FAILED, "stopped": EXIT_STOPPED}

CONFIGURATIONS = Path("/etc/inference-server/configurations")
CONTROL = Path("/run/inference-control.sock")


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        return int(options.command(options))
    except PlanError as exc:
        for problem in exc.problems:
            _say(problem, to=sys.stderr)
        return EXIT_REFUSED
    except BenchError as exc:
        _say(str(exc), to=sys.stderr)
        return EXIT_REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench_runner", description="Measure a campaign's cells on this node."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    here = argparse.ArgumentParser(add_help=False)
    here.add_argument("--dir", type=Path, required=True, help="the campaign's folder (plan.yml lies in it)")
    deployed = argparse.ArgumentParser(add_help=False)
    deployed.add_argument(
        "--configurations", type=Path, default=CONFIGURATIONS, help="descriptions of what is deployed"
    )
    deployed.add_argument("--retry", action="store_true", help="run cells again whose attempts are used up")

    command = commands.add_parser("run", parents=[here, deployed], help="measure what isn't done yet")
    command.add_argument(
        "--control", type=Path, default=CONTROL, help="the socket that starts and stops servers"
    )
    command.set_defaults(command=_run)
    command = commands.add_parser(
        "plan", parents=[here, deployed], help="say what run would do, and change nothing"
    )
    command.add_argument("--json", action="store_true", help="for programs")
    command.add_argument("--plan", type=Path, help="a plan that isn't in the folder yet")
    command.add_argument("--environment", type=Path, help="an environment.json that isn't in the folder yet")
    command.set_defaults(command=_plan)
    command = commands.add_parser("status", parents=[here], help="where the campaign stands")
    command.set_defaults(command=_status)
    command = commands.add_parser("validate", help="check a plan alone, before anything is deployed")
    command.add_argument("plan", type=Path, help="YAML file")
    command.add_argument("--known", nargs="*", help="names of the configurations that will be deployed")
    command.set_defaults(command=_validate)
    return parser


def _run(options: argparse.Namespace) -> int:
    outcome = run(Folder(options.dir), options.configurations, options.control, retry=options.retry)
    _say(outcome.message, to=sys.stderr if outcome.state == "failed" else sys.stdout)
    return _EXITS[outcome.state]


def _plan(options: argparse.Namespace) -> int:
    folder = Folder(options.dir, plan=options.plan, environment=options.environment)
    prepared, tasks, history = look(folder, options.configurations, retry=options.retry)
    counted = Counter(task.decision.action for task in tasks)
    if options.json:
        listed = [
            {"cell": task.cell.name, "action": task.decision.action, "why": task.decision.why}
            for task in tasks
        ]
        _say(
            json.dumps(
                {
                    "campaign": prepared.plan.name,
                    "cells": listed,
                    "counts": counted,
                    "new_skips": sum(
                        task.decision.action == "skip" and not task.decision.recorded for task in tasks
                    ),
                    "expected_s": _expected_s(tasks, history),
                }
            )
        )
        return EXIT_FINISHED
    for task in tasks:
        _say(f"{task.position:4d}  {task.decision.action:5s}  {task.cell.title}: {task.decision.why}")
    expected = _expected_s(tasks, history)
    duration = (
        "no earlier run to tell the time by" if expected is None else f"about {expected:.0f} s of measuring"
    )
    actions = ", ".join(f"{number} to {action}" for action, number in counted.items())
    _say(f"{len(tasks)} cells: {actions}; {duration}")
    return EXIT_FINISHED


def _expected_s(tasks: list[Task], history: History) -> float | None:
    """The measuring time of the cells to run, where each was measured before."""
    known = [history.duration_s(task.cell.name) for task in tasks if task.decision.action == "run"]
    return sum(seconds or 0.0 for seconds in known) if None not in known else None


def _status(options: argparse.Namespace) -> int:
    folder = Folder(options.dir)
    try:
        shown = json.loads(folder.status.read_bytes())
    except OSError as exc:
        _say(f"{folder.status}: {exc.strerror}; has this campaign been run?", to=sys.stderr)
        return EXIT_REFUSED
    _say(f"{shown['campaign']} on {shown['node']}: {shown['state']} ({shown['updated_at']})")
    _say(shown["message"])
    _say(", ".join(f"{number} {status}" for status, number in shown["counts"].items()))
    for todo in shown["todos"]:
        if todo["status"] in {"failed", "skipped", "in_progress"}:
            _say(f"  {todo['status']:11s} {todo['content']}: {todo['reason'] or 'running'}")
    return EXIT_FINISHED


def _validate(options: argparse.Namespace) -> int:
    raw = yaml.safe_load(options.plan.read_bytes())
    plan = check_plan(raw, source=options.plan.name, known_configurations=options.known)
    _say(f"{plan.name}: the plan is right")
    return EXIT_FINISHED


def _say(text: str, *, to: TextIO | None = None) -> None:
    print(text, file=to or sys.stdout, flush=True)
