"""Ask the stager about each model, start it where needed, and follow it: one model at a time, in order."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Protocol

from . import command, runner, state

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.05
ALIVE_POLL_S = 0.5


class RunCommand(Protocol):
    """AnsibleModule.run_command, as far as it is used here."""

    def __call__(self, args: list[str], *, cwd: str) -> tuple[int, str, str]: ...


class CheckError(Exception):
    """The stager refused what was asked for; nothing was written."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def ask(run: RunCommand, python: str, folder: str, verb: str, arguments: list[str]) -> dict[str, Any]:
    """What a verb of the stager answers; CheckError with its sentence when it refuses."""
    rc, out, err = run(command.stager(python, verb, arguments), cwd=folder)
    if rc:
        lines = [line for line in err.splitlines() if line.startswith("model_stager: ")]
        raise CheckError(
            lines[-1][len("model_stager: ") :] if lines else err.strip()[-500:] or f"exit code {rc}", rc
        )
    answer: dict[str, Any] = json.loads(out)
    return answer


def check(run: RunCommand, python: str, folder: str, arguments: list[str]) -> dict[str, Any]:
    """What `stage` would do, by the stager itself."""
    return ask(run, python, folder, "check", arguments)


class Queue:
    """The models that are not finished; all is read from the node, so a lost connection loses nothing."""

    def __init__(
        self, launcher: runner.Systemd | runner.Process, root: str, pending: list[dict[str, Any]]
    ) -> None:
        self._launcher = launcher
        self._default = root
        self.pending = pending
        self.finished: list[dict[str, Any]] = []
        self.failed = ""
        self.code = ""  # what kind of failure, as the stager names it

    def _root(self, item: dict[str, Any]) -> str:
        """Where its progress and result are: a model may be staged on a disk."""
        return str(item.get("root") or self._default)

    def advance(self, start: Callable[[dict[str, Any]], None], budget_s: float) -> None:
        """Start what is next and wait for news, at most so long; `start(item)` starts a model's stager."""
        deadline = time.monotonic() + budget_s
        while self.pending and not self.failed and time.monotonic() < deadline:
            item = self.pending[0]
            if not item["attached"] and not state.was_launched(self._root(item), item["name"], item["run"]):
                start(item)
            self._wait(item, deadline)

    def _wait(self, item: dict[str, Any], deadline: float) -> None:
        look = 0.0
        while time.monotonic() < deadline:
            if self._take(item):
                return
            if time.monotonic() >= look:
                look = time.monotonic() + ALIVE_POLL_S
                # In this order: the result is written before the stager ends.
                if not self._launcher.is_alive(self._root(item), item["name"]) and not self._take(item):
                    self.failed = f"{item['name']}: {self._launcher.end(item['name'])}; run again to go on"
                    return
                if item not in self.pending:
                    return
            time.sleep(POLL_S)

    def _take(self, item: dict[str, Any]) -> bool:
        """Whether this run has left its result."""
        found = state.result(self._root(item), item["name"])
        if not found or found.get("run") != item["run"]:
            return False
        if found["ok"]:
            self.pending.remove(item)
            self.finished.append({**found, **item.get("known", {})})
        else:
            self.failed, self.code = found["error"]["message"], found["error"]["code"]
        return True

    def give_up_first(self) -> dict[str, Any]:
        """Go on with the next: for the model in work, others will be asked."""
        self.failed = self.code = ""
        return self.pending.pop(0)

    def progress(self) -> str:
        """One line about the model in work, and how many wait."""
        if not self.pending:
            return ""
        first, waiting = self.pending[0], len(self.pending) - 1
        now = state.progress(self._root(first), first["name"])
        line = state.progress_line(first["name"], now if now.get("run") == first["run"] else {})
        return f"{line}; {waiting} more to come" if waiting else line
