"""Which steps of the repair ladder a diagnosis needs now, cheapest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LADDER = (
    "load_modules",
    "make_nodes",
    "fix_config",
    "hot_plug",
    "start_container",
    "restart_container",
    "reboot_host",
)
# Causes that end when a running container is allowed what its file says.
_PLUGGABLE = frozenset(("config_not_applied",))
# What these bring may have majors that the file doesn't allow, which shows only inside a container that was
# started since. So the file comes before the start, and one start is enough.
_HOST_STEPS = frozenset(("load_modules", "make_nodes"))
_STARTS = frozenset(("start_container", "restart_container"))
# While a person has not mended these, no start succeeds: a container that still runs is not stopped for one.
_PREVENT_STARTS = frozenset(("devn_without_host_node", "idmap_incomplete"))
# A person's matter, until the operator says that the file may go.
_FILE_IN_THE_WAY = frozenset(("host_node_not_a_device",))


def steps_needed(
    diagnosis: Mapping[str, Any],
    done: Mapping[str, Any],
    *,
    hot_plug_enabled: bool = True,
    replace_files: bool = False,
) -> list[str]:
    """The steps to take now, in order. A step that was taken is not taken again.

    The diagnosis may be older than the last step, where that step alone can't heal: a changed file counts for
    a running container only after a hot-plug or a restart.
    """
    if diagnosis["verdict"] == "healthy":
        return []
    causes = [cause for cause in diagnosis["causes"] if cause["severity"] == "repairable"]
    needed = {str(cause["repair"]) for cause in causes if cause.get("repair")}
    if replace_files and any(cause["name"] in _FILE_IN_THE_WAY for cause in diagnosis["causes"]):
        needed.add("make_nodes")
    running = diagnosis["link"].get("container") == "running"
    file_step = done.get("fix_config", {})
    file_changed = bool(file_step.get("config_changed") or file_step.get("deferred"))
    if running and file_changed and not done.get("hot_plug", {}).get("changed"):
        needed.add("restart_container")
    not_applied = any(cause["name"] in _PLUGGABLE for cause in causes)
    if hot_plug_enabled and running and (file_changed or not_applied):
        needed.add("hot_plug")
    if needed & _STARTS and done.keys() & _HOST_STEPS:
        needed.add("fix_config")
    for_a_person = {cause["name"] for cause in diagnosis["causes"] if cause["severity"] == "needs_person"}
    if for_a_person & _PREVENT_STARTS:
        needed -= {*_STARTS, "reboot_host"}
    return [step for step in LADDER if step in needed and step not in done]


def is_probe_due(result: Mapping[str, Any], step: str) -> bool:
    """Whether the diagnosis may be out of date after a step.

    So it is also when the step found nothing to do: then something else, such as the repair of another
    container of this host, was faster. A changed file alone heals nothing that runs; its hot-plug or restart
    comes next.
    """
    if step == "fix_config":
        return not (result.get("config_changed") or result.get("deferred"))
    return bool(result.get("changed")) or step != "hot_plug"


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"pve_lxc_steps_needed": steps_needed, "pve_lxc_is_probe_due": is_probe_due}
