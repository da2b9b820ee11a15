"""gpu_probe_host: the module, after the question whether its host is there. Waits for it within a limit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ansible.module_utils
from ansible.plugins.action import ActionBase

if TYPE_CHECKING:
    from collections.abc import Mapping

# A role's module_utils can't be imported on the controller by themselves: the path comes before the import.
_FOLDER = str(Path(__file__).resolve().parents[1] / "module_utils")
if _FOLDER not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_FOLDER)

from ansible.module_utils.gpu_probe.calls import call_over_link
from ansible.module_utils.gpu_probe.link import container_state, is_young


class ActionModule(ActionBase):
    """Never unreachable and never failed: a link that is down is evidence too."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        limit_s = float(arguments.pop("wait_s", 0) or 0)
        vmids = [int(vmid) for vmid in arguments.get("vmids") or []]

        def still_waiting(evidence: Mapping[str, Any]) -> str:
            starting = [vmid for vmid in vmids if container_state(evidence, vmid) == "starting"]
            return f"container {starting[0]} is still starting" if starting else ""

        result.update(call_over_link(self, arguments, task_vars or {}, limit_s, still_waiting))
        evidence = result.get("evidence") or {}
        states = [container_state(evidence, vmid) for vmid in vmids]
        # A node without a running container, or on a silent host, would only cost ssh's time-out.
        result["ask_node"] = "running" in states or ("unknown" in states and result["link"] != "silent")
        result["through_host"] = "running" in states
        result["node_wait_s"] = limit_s if any(is_young(evidence, vmid) for vmid in vmids) else 0
        return result
