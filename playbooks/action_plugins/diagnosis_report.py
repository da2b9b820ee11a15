"""Show the diagnoses of all nodes as one table, write diagnosis.json, and only then fail when asked to."""

from __future__ import annotations

DOCUMENTATION = """
    module: diagnosis_report
    short_description: prints one table of all diagnoses and writes diagnosis.json
    description:
      - Runs on the controller, once for all nodes, over their fact C(gpu_probe_diagnosis). A node without
        it stands in the table and in the file as one without a diagnosis.
    options:
      nodes: {description: What was to be probed., type: list, elements: str, required: true}
      to: {description: The file to write., type: path, required: true}
      strict: {description: Fail when a node is not healthy; after the table., type: bool, default: false}
"""

import json
import sys
import textwrap
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.plugins.action import ActionBase

# Plugins are loaded by path, and a role's module_utils are not importable on the controller by themselves.
_PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_PROJECT / "playbooks")]
_MODULE_UTILS = str(_PROJECT / "roles/gpu_probe/module_utils")
if _MODULE_UTILS not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_MODULE_UTILS)

from ansible.module_utils.gpu_probe.change_words import sentences
from ansible.module_utils.gpu_probe.report import proof_words
from diagnosis_report.document import document, one_line, sort_out, worst
from diagnosis_report.table import WIDTH, remarks, table_lines
from recovery_report.record import write_whole
from recovery_report.words import from_here


class ActionModule(ActionBase):
    """See DOCUMENTATION."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            argument_spec={
                "nodes": {"type": "list", "elements": "str", "required": True},
                "to": {"type": "path", "required": True},
                "strict": {"type": "bool", "default": False},
            },
        )
        hostvars = (task_vars or {})["hostvars"]
        found = {node: plain(hostvars[node].get("gpu_probe_diagnosis")) for node in args["nodes"]}
        diagnoses, missing = sort_out(args["nodes"], found)
        path = Path(args["to"])
        self._show(diagnoses, missing, path)
        # Rewritten on every run, like recovery.json: a record of this run, not a change of anything.
        result.update(changed=False, verdict=worst(diagnoses, missing), path=str(path))
        made_at = datetime.now(tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        whole = document(diagnoses, missing, made_at=made_at)
        try:
            write_whole(path, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
        except OSError as exc:
            failure = f"{path} can't be written: {exc.strerror}. Choose another results_dir, or free it."
            result.update(failed=True, msg=failure)
            return result
        if args["strict"] and result["verdict"] != "healthy":
            said = one_line(diagnoses, missing)
            result.update(failed=True, msg=f"Not every node is healthy (gpu_probe_strict): {said}.")
        return result

    def _show(self, diagnoses: list[Any], missing: list[dict[str, str]], path: Path) -> None:
        lines = table_lines(diagnoses, missing, proof_words=proof_words)
        below = remarks(diagnoses, change_sentences=sentences)
        said = f"{one_line(diagnoses, missing)}. The whole evidence: {from_here(str(path))}"
        # A summary would be the line of one node, and this is about all of them.
        for line in ["", *lines, *(["", *below] if below else []), "", *textwrap.wrap(said, WIDTH)]:
            self._display.display(line)


def plain(value: Any) -> Any:  # noqa: ANN401 - a fact of any shape
    """Facts come as containers that are templated when they are looked at; a JSON writer looks past them."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value
