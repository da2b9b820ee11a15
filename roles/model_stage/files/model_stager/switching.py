"""Between two configurations: free what the next set does not need, stage what it does. Needs no Ansible."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from model_stager import lock
from model_stager.arguments import parse_wanted, request_of, wishes_of
from model_stager.arranging import apply, arrange, scene_of, sentences
from model_stager.checking import check
from model_stager.errors import BadRequestError, StagerError, StoppedError
from model_stager.manifest import write_whole
from model_stager.outcome import utc_now
from model_stager.placing import MEMORY

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA_VERSION = 1
POLL_S = 0.2
ONLY = "-all,+dac_read_search"


class SwitchState:
    """The file by which others follow a switch: whole at each moment."""

    def __init__(self, path: Path, number: int) -> None:
        self._path = path
        self._value: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "set": number,
            "run": os.environ.get("INVOCATION_ID") or f"{time.time_ns()}-{os.getpid()}",
            "state": "checking",
            "models": [],
            "paths": {},
            "removed": [],
            "freed_bytes": 0,
            "model": None,
            "progress": None,
            "error": None,
            "summary": "",
            "started_at": utc_now(),
            "ended_at": None,
        }

    def say(self, state: str, **fields: object) -> None:
        self._value.update(fields, state=state)
        if state in ("done", "failed"):
            self._value.update(ended_at=utc_now(), progress=None)
        write_whole(self._path, self._value)


def switch(plan: dict[str, Any], number: int, path: Path, stop: threading.Event) -> str:
    """Returns one sentence; the state file has the rest, also of a failure."""
    sets = plan["sets"]
    if not 0 <= number < len(sets):
        raise BadRequestError(f"the plan has the sets 0 to {len(sets) - 1}, there is no {number}")
    with lock.held(path.with_name(f"{path.name}.lock"), "the switch", 0.0):
        state = SwitchState(path, number)
        try:
            summary = _switch(plan, number, state, stop)
        except StagerError as exc:
            state.say("failed", error={"code": exc.code, "message": str(exc)}, summary=str(exc))
            raise
        except OSError as exc:
            state.say("failed", error={"code": "failed", "message": str(exc)}, summary=str(exc))
            raise
        state.say("done", summary=summary)
    return summary


def _switch(plan: dict[str, Any], number: int, state: SwitchState, stop: threading.Event) -> str:
    names = list(dict.fromkeys(plan["sets"][number]))
    state.say("checking", models=names)
    answers = _look_at_all(plan, names)
    facts = {name: answer for name, answer in answers.items() if answer["place"] == MEMORY}
    scene = scene_of(plan, facts, number)
    found = arrange(scene)
    models = list(dict.fromkeys([*names, *found.now]))
    state.say("freeing", models=models, paths={name: answers[name]["path"] for name in models})
    freed = apply(scene, found)
    said = sentences(scene, found, done=True)
    state.say("staging", removed=[one.name for one in found.removals], freed_bytes=freed)
    for name in models:
        if answers[name]["action"] == "none":
            said.append(answers[name]["summary"])
        else:
            said.append(_stage(plan, name, answers[name]["root"], state, stop))
    return "; ".join(said)


def _look_at_all(plan: dict[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Raises for what is asked for; another model that is not there, and can't be had, is left out."""
    answers = {}
    for name in plan["models"]:
        try:
            answers[name] = _look(plan, name)
        except StagerError:  # noqa: PERF203 - each is looked at for itself
            if name in names:
                raise
    return answers


def _look(plan: dict[str, Any], name: str) -> dict[str, Any]:
    args = parse_wanted(plan["models"][name]["arguments"])
    return check(request_of(args), wishes_of(args), deep=args.deep, room_later=True)


def _stage(plan: dict[str, Any], name: str, root: str, state: SwitchState, stop: threading.Event) -> str:
    """In a process of its own, with the rights of the user who stages; stopped when we are."""
    _require_going_on(name, stop)
    command = [sys.executable, "-s", "-B", "-m", "model_stager", "stage", *plan["models"][name]["arguments"]]
    process = subprocess.Popen(
        as_user(plan["user"], command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    progress = os.path.join(root, ".model-stage", name, "progress.json")  # noqa: PTH118 - only to be opened
    with process:
        while True:
            try:
                out, err = process.communicate(timeout=POLL_S)
                break
            except subprocess.TimeoutExpired:
                state.say("staging", model=name, progress=_read(progress))
                if stop.is_set():
                    process.send_signal(signal.SIGTERM)
    _require_going_on(name, stop)
    if process.returncode:
        lines = err.strip().splitlines() or [f"the stager ended with {process.returncode}"]
        failed = StagerError(lines[-1].partition("model_stager: ")[2] or lines[-1])
        failed.exit_code = process.returncode if process.returncode > 0 else 1
        kinds = (kind.code for kind in StagerError.__subclasses__() if kind.exit_code == failed.exit_code)
        failed.code = next(kinds, failed.code)
        raise failed
    return out.strip()


def _require_going_on(name: str, stop: threading.Event) -> None:
    if stop.is_set():
        raise StoppedError(f"{name}: stopped; verified parts stay for the next run")


def as_user(user: str, command: list[str]) -> list[str]:
    """As the unit of a single model has it: reads everything, writes what is the user's."""
    if not user or os.geteuid() != 0:
        return command
    try:
        owner = pwd.getpwnam(user)
    except KeyError:
        raise BadRequestError(f"the plan names the user {user}, who does not exist here") from None
    ids = [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}"]
    found = ["setpriv", *ids, "--clear-groups", "--no-new-privs"]
    return [*found, f"--inh-caps={ONLY}", f"--ambient-caps={ONLY}", f"--bounding-set={ONLY}", "--", *command]


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123 - as above
            value: dict[str, Any] = json.load(stream)
    except (OSError, ValueError):  # nothing yet
        return None
    return value
