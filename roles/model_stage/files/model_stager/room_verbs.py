"""The verbs about room: arrange, switch, remove."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from model_stager.arguments import SHM
from model_stager.arranging import apply, arrange, read_plan, scene_of, to_json
from model_stager.errors import NoRoomError
from model_stager.removal import find, remove_staged
from model_stager.switching import switch
from model_stager.text import bytes_text

if TYPE_CHECKING:
    import argparse

STATE = Path("/run/model-stage/switch.json")


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    verb = verbs.add_parser("arrange", help="say as JSON what the models of a plan need to be in memory")
    verb.add_argument("--plan", type=Path, required=True, help="a file with sets, allowances and `facts`")
    verb.add_argument("--apply", action="store_true", help="remove and grow as it says")
    verb.set_defaults(work=_arrange)

    verb = verbs.add_parser("switch", help="make the models of one set of a plan be there")
    verb.add_argument("--plan", type=Path, required=True, help="as the role has written it")
    verb.add_argument("--set", type=int, required=True, dest="number", help="its place in the plan, from 0")
    verb.add_argument("--state", type=Path, default=STATE, help="progress and result (default: %(default)s)")
    verb.set_defaults(work=_switch)

    verb = verbs.add_parser("remove", help="remove a published model or unfinished copy that nobody reads")
    verb.add_argument("--name", required=True)
    verb.add_argument("--root", type=Path, default=SHM, help="default: %(default)s")
    verb.set_defaults(work=_remove)


def _arrange(args: argparse.Namespace) -> int:
    plan = read_plan(args.plan)
    scene = scene_of(plan, plan["facts"])
    try:
        found = arrange(scene)
    except NoRoomError as exc:
        error = {"code": exc.code, "message": str(exc), "data": exc.data()}
        sys.stdout.write(json.dumps({"action": "refused", "error": error}) + "\n")
        raise
    if args.apply:
        apply(scene, found)
    sys.stdout.write(json.dumps(to_json(scene, found, done=args.apply)) + "\n")
    return 0


def _switch(args: argparse.Namespace) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    sys.stdout.write(f"{switch(read_plan(args.plan), args.number, args.state, stop)}\n")
    return 0


def _remove(args: argparse.Namespace) -> int:
    one = find(args.root, args.name)
    freed = remove_staged(args.root, one)
    sys.stdout.write(f"{args.root / args.name}: removed, {bytes_text(freed)} are free again\n")
    return 0
