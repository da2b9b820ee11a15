"""Run one of our modules over a link that may be down, and tell how it is down. For action plugins only.

Runs on the controller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from .link import WAITABLE, WORDS, classify

if TYPE_CHECKING:
    from ansible.plugins.action import ActionBase

PAUSE_S = 1.0
# What a module's own failure can say about the link; its other words are about something else.
FAILURE_STATES = ("sudo_refused", "python_missing")


def call_over_link(
    action: ActionBase,
    arguments: dict[str, Any],
    task_vars: Mapping[str, Any],
    limit_s: float,
    still_waiting: Callable[[Mapping[str, Any]], str],
) -> dict[str, Any]:
    """One attempt, for a task with `until: result.finished`.

    `link` is "up" with `evidence`, or the word for what is wrong with `message`. Not finished:
    it may still come up (the link is waitable, or `still_waiting(evidence)` has a reason), and there is time.
    """
    now = time.monotonic()
    started = _waiting_since(action, task_vars) or now
    call = _one_attempt(action, arguments, task_vars)
    call["address"] = _address(action)
    waiting = f"{call['address']} {WORDS[call['link']]}" if call["link"] in WAITABLE else ""
    if call["link"] == "up":
        waiting = still_waiting(call["evidence"])
    elapsed = now - started
    call["changed"] = False
    call["finished"] = not waiting or elapsed >= limit_s
    if not call["finished"]:
        call["waiting_since"] = started
        call["progress"] = f"{waiting} ({elapsed:.0f} s of at most {limit_s:.0f} s)"
        time.sleep(PAUSE_S)
    elif elapsed:
        call["waited_s"] = {"boot": round(elapsed, 1)}
    return call


def _waiting_since(action: ActionBase, task_vars: Mapping[str, Any]) -> float | None:
    """When this `until` loop began: each attempt is a new plugin, but the last result is at hand."""
    register = action._task.register  # noqa: SLF001 - how Ansible gives a plugin its task
    previous = task_vars.get(register) if register else None
    if isinstance(previous, Mapping) and previous.get("finished") is False:
        return float(previous["waiting_since"])
    return None


def _one_attempt(
    action: ActionBase, arguments: dict[str, Any], task_vars: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        answer = action._execute_module(  # noqa: SLF001 - the way to run a module from a plugin
            module_name=action._task.action,  # noqa: SLF001
            module_args=arguments,
            task_vars=task_vars,
        )
    except AnsibleConnectionFailure as exc:
        state = classify(str(exc))
        if state in ("closed", "failed"):
            _drop_connection(action)
        return {"link": state, "message": _last_words(str(exc))}
    except AnsibleError as exc:
        if classify(str(exc)) != "sudo_refused":
            raise
        return {"link": "sudo_refused", "message": _last_words(str(exc))}
    if isinstance(answer.get("evidence"), Mapping):
        return {"link": "up", "message": "", "evidence": answer["evidence"]}
    said = _failure_words(answer)
    state = classify(said)
    return {"link": state if state in FAILURE_STATES else "failed", "message": said}


def _failure_words(answer: Mapping[str, Any]) -> str:
    """What a failed module said; an exception of its own stands apart from `msg`."""
    summary = answer.get("exception")
    event = getattr(getattr(summary, "event", None), "msg", summary)
    parts = [answer.get("msg"), event, answer.get("module_stderr"), answer.get("module_stdout")]
    return " ".join(str(part).strip() for part in parts if part)[-600:]


def _drop_connection(action: ActionBase) -> None:
    """A master connection from before the reboot may still be there, and is dead."""
    try:
        action._connection.reset()  # noqa: SLF001 - as meta: reset_connection does
    except AnsibleError:
        return


def _address(action: ActionBase) -> str:
    try:
        return str(action._connection.get_option("host"))  # noqa: SLF001
    except (KeyError, AnsibleError):
        return str(action._play_context.remote_addr)  # noqa: SLF001


def _last_words(message: str) -> str:
    """The words of ssh itself, without what Ansible says before them."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or [message]
    return lines[-1][max(0, lines[-1].rfind("ssh: ")) :][-300:]
