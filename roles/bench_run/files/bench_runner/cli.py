"""The command line: run, plan, status, validate, quirks. Only this file prints and only this file exits."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from bench_runner import __version__, cli_quirks
from bench_runner.campaign import look, run
from bench_runner.deadline import DeadlineError, check_deadline
from bench_runner.earlier import read_earlier
from bench_runner.errors import BenchError, PlanError
from bench_runner.forecast import Forecaster
from bench_runner.loops import run_in_loop
from bench_runner.plan_check import load_plan
from bench_runner.plan_schema import as_text as plan_schema_text
from bench_runner.plan_view import as_json as plan_as_json
from bench_runner.plan_view import as_table, view
from bench_runner.prepared import Wishes
from bench_runner.records import Folder
from bench_runner.selftest.report import REPEATS, selftest, table, write
from bench_runner.server.explain import explain

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_FINISHED = 0
EXIT_REFUSED = 2
EXIT_FAILED = 3
EXIT_STOPPED = 4
_EXITS = {"finished": EXIT_FINISHED, "failed": EXIT_FAILED, "stopped": EXIT_STOPPED}

ROOT = Path("/var/lib/bench")
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
    deployed.add_argument("--quick", action="store_true", help="only the plan's quick campaign")
    deployed.add_argument(
        "--deadline", help="no cell starts after it: 90m, 7h30m, 06:30, 2026-12-01T06:30+01:00"
    )

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
    command.add_argument("--not-staged", action="store_true", help="the models are to be staged still")
    command.set_defaults(command=_plan)
    command = commands.add_parser("status", parents=[here], help="where the campaign stands")
    command.set_defaults(command=_status)
    command = commands.add_parser("validate", help="check a plan alone, before anything is deployed")
    command.add_argument("plan", type=Path, help="YAML file")
    command.add_argument("--known", nargs="*", help="names of the configurations that will be deployed")
    command.set_defaults(command=_validate)
    command = commands.add_parser("schema", help="the plan's JSON schema")
    command.set_defaults(command=_schema)
    _add_quirks(commands)
    command = commands.add_parser("selftest", help="how far this machine's figures hold: within a minute")
    command.add_argument("--json", type=Path, help="write the whole result there")
    command.add_argument("--quick", action="store_true", help="each load once instead of three times")
    command.set_defaults(command=_selftest)
    command = commands.add_parser("explain", help="what a server's log file says: its crash, its last batch")
    command.add_argument("log", type=Path, help="of any size: it is read from its end")
    command.set_defaults(command=_explain)
    return parser


def _add_quirks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("quirks", help="known faults of this node: list, show, accept, reject")
    command.add_argument("verb", nargs="?", default="list", choices=["list", "show", "accept", "reject"])
    command.add_argument("name", nargs="?", help="of one quirk")
    command.add_argument("--root", type=Path, default=ROOT, help="the node's folder of campaigns")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(command=_quirks)


def _run(options: argparse.Namespace) -> int:
    outcome = run(Folder(options.dir), options.configurations, options.control, _wishes(options))
    _say(outcome.message, to=sys.stderr if outcome.state == "failed" else sys.stdout)
    return _EXITS[outcome.state]


def _plan(options: argparse.Namespace) -> int:
    folder = Folder(options.dir, plan=options.plan, environment=options.environment)
    wishes = msgspec.structs.replace(_wishes(options), staged=not options.not_staged)
    found = look(folder, options.configurations, wishes)
    seen = view(found, Forecaster(found.prepared.plan, read_earlier(folder.root.parent)))
    if options.json:
        _say(json.dumps(plan_as_json(seen)))
    else:
        _say("\n".join(as_table(seen)))
    return EXIT_FINISHED


def _wishes(options: argparse.Namespace) -> Wishes:
    if options.deadline is not None:
        try:
            check_deadline(options.deadline)
        except DeadlineError as exc:
            raise PlanError([f"--deadline: found {options.deadline!r}, {exc}"]) from exc
    return Wishes(retry=options.retry, quick=options.quick, deadline=options.deadline)


def _explain(options: argparse.Namespace) -> int:
    try:
        _say("\n".join(explain(options.log)))
    except OSError as exc:
        _say(f"{options.log}: {exc.strerror}", to=sys.stderr)
        return EXIT_REFUSED
    return EXIT_FINISHED


def _quirks(options: argparse.Namespace) -> int:
    if options.verb == "list":
        found = (
            cli_quirks.as_json(options.root) if options.json else "\n".join(cli_quirks.listed(options.root))
        )
        _say(found or f"no quirk is known in {options.root}")
        return EXIT_FINISHED
    if options.name is None:
        _say(f"quirks {options.verb}: which one? (quirks list names them)", to=sys.stderr)
        return EXIT_REFUSED
    if options.verb == "show":
        _say(cli_quirks.shown(options.root, options.name))
    else:
        _say(cli_quirks.decided(options.root, options.name, options.verb))
    return EXIT_FINISHED


def _status(options: argparse.Namespace) -> int:
    folder = Folder(options.dir)
    try:
        shown = json.loads(folder.status.read_bytes())
    except OSError as exc:
        _say(f"{folder.status}: {exc.strerror}; has this campaign been run?", to=sys.stderr)
        return EXIT_REFUSED
    except ValueError as exc:
        _say(f"{folder.status} can't be read: {exc}; the next run writes it anew", to=sys.stderr)
        return EXIT_REFUSED
    _say(f"{shown['campaign']} on {shown['node']}: {shown['state']} ({shown['updated_at']})")
    _say(shown["message"])
    _say(", ".join(f"{number} {status}" for status, number in shown["counts"].items()))
    for todo in shown["todos"]:
        if todo["status"] in {"failed", "skipped", "in_progress"}:
            _say(f"  {todo['status']:11s} {todo['content']}: {todo['reason'] or 'running'}")
    for note in shown.get("quirks", []):
        held = f", holds back {note['cells']} cells" if note["cells"] else ""
        _say(f"  quirk {note['name']} ({note['state']}{held}): {note['sentence']}")
    return EXIT_FINISHED


def _validate(options: argparse.Namespace) -> int:
    plan = load_plan(options.plan, known_configurations=options.known)
    _say(f"{plan.name}: the plan is right")
    return EXIT_FINISHED


def _schema(_: argparse.Namespace) -> int:
    _say(plan_schema_text().rstrip())
    return EXIT_FINISHED


def _selftest(options: argparse.Namespace) -> int:
    found = selftest(run_in_loop, repeats=1 if options.quick else REPEATS)
    _say(table(found))
    if options.json:
        write(found, options.json)
    return EXIT_FINISHED if all(line.certified for line in found.lines) else EXIT_FAILED


def _say(text: str, *, to: TextIO | None = None) -> None:
    print(text, file=to or sys.stdout, flush=True)
