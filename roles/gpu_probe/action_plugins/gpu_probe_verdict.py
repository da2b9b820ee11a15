"""gpu_probe_verdict: on the controller, from evidence to diagnosis, operator's line, and recovery.json."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# On the controller roles' module_utils are not importable by themselves. pve_lxc reads container files.
_ROLES = Path(__file__).resolve().parents[2]
for _folder in (str(_ROLES / role / "module_utils") for role in ("gpu_probe", "pve_lxc")):
    if _folder not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(_folder)

from ansible.module_utils.gpu_probe.changes import what_changed
from ansible.module_utils.gpu_probe.diagnose import diagnose
from ansible.module_utils.gpu_probe.evidence import mapping
from ansible.module_utils.gpu_probe.link import describe
from ansible.module_utils.gpu_probe.report import recovery_entry, summary

ARGUMENTS = {
    "host": {"type": "str", "required": True},
    "vmid": {"type": "int", "required": True},
    "host_call": {"type": "dict", "required": True},
    "node_call": {"type": "dict", "required": True},
    "through_host_call": {"type": "dict", "default": {}},
    "expected_gpus": {"type": "int", "default": 0},
    "host_gpus": {"type": "int", "default": 0},
    "model_bytes": {"type": "int", "default": 0},
    "before": {"type": "path"},
    "save_to": {"type": "path"},
    "known": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _checked, asked = self.validate_argument_spec(ARGUMENTS)
        node = str((task_vars or {})["inventory_hostname"])
        diagnosis = self._diagnose(node, asked)
        if asked["before"]:
            diagnosis["changes"] = what_changed(read_diagnosis(asked["before"]), diagnosis)
        if asked["save_to"]:
            save(diagnosis, Path(asked["save_to"]))
        result.update(
            changed=False,
            diagnosis=diagnosis,
            summary=summary(diagnosis),
            recovery=recovery_entry(diagnosis, asked["known"]),
        )
        return result

    @staticmethod
    def _diagnose(node: str, asked: dict[str, Any]) -> dict[str, Any]:
        host_call, node_call = asked["host_call"], asked["node_call"]
        host_evidence = mapping(host_call, "evidence")
        node_evidence, via = mapping(node_call, "evidence"), "ssh"
        if not node_evidence:
            second = mapping(asked["through_host_call"], "evidence")
            node_evidence = mapping(second, "containers", str(asked["vmid"]), "node")
            via = "pct exec" if node_evidence else "none"
            host_evidence = second or host_evidence
            said = asked["through_host_call"].get("message")
            if said:
                blind = {"what": "the node through its host", "why": said}
                host_evidence = dict(host_evidence, unseen=[*host_evidence.get("unseen", []), blind])
        answer: dict[str, Any] = diagnose(
            node=node,
            host=asked["host"],
            vmid=asked["vmid"],
            link=describe(dict(host_call, evidence=host_evidence), node_call, asked["vmid"], via),
            host_evidence=host_evidence,
            node_evidence=node_evidence,
            expected_gpus=asked["expected_gpus"],
            host_gpus=asked["host_gpus"],
            model_bytes=asked["model_bytes"],
            probed_at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        return answer


def read_diagnosis(path: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise AnsibleActionFail(
            f"{path} on the controller can't be read as an earlier diagnosis ({exc}). "
            f"Run prepare-reboot again before the reboot, or leave gpu_probe_before empty."
        ) from exc
    if not isinstance(found, dict) or found.get("schema") != "recover-and-bench/diagnosis":
        raise AnsibleActionFail(f"{path} on the controller is not a diagnosis of this program.")
    return found


def save(diagnosis: dict[str, Any], folder: Path) -> None:
    """Whole or not at all: a reader never sees half a file."""
    target = folder / f"{diagnosis['node']}.json"
    partial = folder / f".{diagnosis['node']}.json.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(diagnosis, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        partial.replace(target)
    except OSError as exc:
        raise AnsibleActionFail(
            f"{target} on the controller can't be written ({exc.strerror}). "
            f"Choose another gpu_probe_save_to, or free that folder."
        ) from exc
