"""gpu_probe_node: the module, but a node out of reach is an answer. Waits for its sshd within a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.plugins.action import ActionBase

# A role's module_utils can't be imported on the controller by themselves: the path comes before the import.
_FOLDER = str(Path(__file__).resolve().parents[1] / "module_utils")
if _FOLDER not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_FOLDER)

from ansible.module_utils.gpu_probe.calls import call_over_link


class ActionModule(ActionBase):
    """Never unreachable and never failed: a link that is down is evidence too."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        limit_s = float(arguments.pop("wait_s", 0) or 0)
        result.update(call_over_link(self, arguments, task_vars or {}, limit_s, lambda _evidence: ""))
        return result
