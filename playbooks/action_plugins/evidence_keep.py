"""Keep what is true of a healthy node, so that the diagnosis after the next reboot can compare with it."""

from __future__ import annotations

DOCUMENTATION = """
    module: evidence_keep
    short_description: writes a healthy node's diagnosis, or the sizes of its models, to the evidence folder
    description:
      - Runs on the controller. A node that is not healthy keeps the evidence of the last time it was.
    options:
      diagnosis: {description: The fact C(gpu_probe_diagnosis); goes to C(<node>.json)., type: dict}
      models: {description: The fact C(model_stage_bytes); goes to C(<node>.models.json)., type: dict}
      folder: {description: Where that is., type: path, required: true}
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
                "diagnosis": {"type": "dict"},
                "models": {"type": "dict"},
                "folder": {"type": "path", "required": True},
            },
            required_one_of=[["diagnosis", "models"]],
            mutually_exclusive=[["diagnosis", "models"]],
        )
        diagnosis, models = args["diagnosis"], args["models"]
        kind = ".models" if diagnosis is None else ""
        path = Path(args["folder"]) / f"{(task_vars or {})['inventory_hostname']}{kind}.json"
        # A record of this run and no change of anything, like recovery.json.
        result.update(changed=False, path=str(path))
        if self._task.check_mode or (diagnosis is not None and diagnosis["verdict"] != "healthy"):
            return result
        try:
            content = models if diagnosis is None else diagnosis
            write_whole(path, json.dumps(content, indent=1, sort_keys=True) + "\n")
        except OSError as exc:
            failure = f"{path} can't be written: {exc.strerror}. Choose another results_dir, or free it."
            result.update(failed=True, msg=failure)
        return result
