"""Keep a healthy node's diagnosis, so that the one after the next reboot can say what changed."""

from __future__ import annotations

DOCUMENTATION = """
    module: evidence_keep
    short_description: writes a healthy node's diagnosis to the evidence folder
    description:
      - Runs on the controller. A node that is not healthy keeps the evidence of the last time it was.
    options:
      diagnosis: {description: The fact C(gpu_probe_diagnosis)., type: dict, required: true}
      folder: {description: Where C(<node>.json) is written., type: path, required: true}
"""

import json
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

# A plugin is loaded by path: the package beside it has to be found first.
sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from recovery_report.record import write_whole


class ActionModule(ActionBase):
    """See DOCUMENTATION."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            argument_spec={
                "diagnosis": {"type": "dict", "required": True},
                "folder": {"type": "path", "required": True},
            },
        )
        diagnosis = args["diagnosis"]
        path = Path(args["folder"]) / f"{diagnosis['node']}.json"
        # A record of this run and no change of anything, like recovery.json.
        result.update(changed=False, path=str(path))
        if diagnosis["verdict"] != "healthy" or self._task.check_mode:
            return result
        try:
            write_whole(path, json.dumps(diagnosis, indent=1, sort_keys=True) + "\n")
        except OSError as exc:
            failure = f"{path} can't be written: {exc.strerror}. Choose another results_dir, or free it."
            result.update(failed=True, msg=failure)
        return result
