"""Close the repair: say in one line what was done, or fail with the causes that remain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible.plugins.action import ActionBase

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST_STEPS = frozenset(("load_modules", "make_nodes"))


class ActionModule(ActionBase):
    """Runs on the controller: it only judges what the steps and the last probe returned."""

    _requires_connection = False
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            {
                "before": {"type": "dict", "required": True},
                "after": {"type": "dict", "required": True},
                "done": {"type": "dict", "required": True},
            }
        )
        return report(arguments["before"], arguments["after"], arguments["done"], check=self._task.check_mode)


def report(
    before: Mapping[str, Any], after: Mapping[str, Any], done: Mapping[str, Any], *, check: bool
) -> dict[str, Any]:
    steps = [entry for result in done.values() for entry in result.get("recovery", {}).get("steps", [])]
    result: dict[str, Any] = {
        "changed": False,
        "recovery": {
            "repair": {"before": names(before), "after": names(after), "verdict": after["verdict"]},
        },
    }
    taken = "; ".join(
        f"{entry['step']} ({entry['seconds']} s): {entry['outcome']}" for entry in steps if entry["changed"]
    )
    if check:
        foretold = f"would repair: {taken}{in_doubt(before, steps)}"
        return {**result, "summary": foretold if taken else nothing(before)}
    if after["verdict"] == "healthy":
        return {**result, "summary": f"healthy after {taken}" if taken else untouched(before)}
    return {**result, "failed": True, "msg": remaining(after, taken)}


def in_doubt(before: Mapping[str, Any], steps: list[dict[str, Any]]) -> str:
    """What check mode can't foretell: a node that is new on the host is not yet one in the container."""
    changed = {entry["step"] for entry in steps if entry["changed"]}
    running = before["link"].get("container") == "running"
    if running and changed & HOST_STEPS and "restart_container" not in changed:
        return "; then it is probed again, and the container may need a changed file and a restart"
    return ""


def untouched(before: Mapping[str, Any]) -> str:
    if before["verdict"] == "healthy":
        return nothing(before)
    return f"healthy by now, without a change by this run (it was: {', '.join(names(before))})"


def nothing(before: Mapping[str, Any]) -> str:
    if before["verdict"] == "healthy":
        return "nothing to do: healthy"
    return f"nothing that this role can repair: {'; '.join(sentences(before))}"


def remaining(after: Mapping[str, Any], taken: str) -> str:
    did = f"after {taken}" if taken else "and no step of the repair ladder applies"
    listed = "".join(f"\n  - {line}" for line in sentences(after))
    remains = listed or " no cause was found; see diagnosis.json"
    return f"{after['node']} is not healthy {did}. What remains:{remains}"


def sentences(diagnosis: Mapping[str, Any]) -> list[str]:
    return [f"{c['name']}: {c['sentence']}" for c in diagnosis["causes"] if c["severity"] != "note"]


def names(diagnosis: Mapping[str, Any]) -> list[str]:
    return [cause["name"] for cause in diagnosis["causes"] if cause["severity"] != "note"]
