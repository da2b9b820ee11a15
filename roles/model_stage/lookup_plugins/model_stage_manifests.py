"""The manifests that the controller keeps, by the name of their model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: model_stage_manifests
short_description: Contents of the manifests that models name, by model
author: recover-and-bench
options:
  _terms:
    description: The list of models.
    required: true
"""


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore] # Ansible ships no types
    """Reads files on the controller."""

    def run(
        self,
        terms: list[list[dict[str, Any]]],
        variables: Any = None,  # noqa: ANN401 - Ansible's signature
        **_: Any,  # noqa: ANN401 - as above
    ) -> list[dict[str, Any]]:
        return [read_all(models, variables or {}) for models in terms]


def read_all(models: list[dict[str, Any]], variables: dict[str, Any]) -> dict[str, Any]:
    """A relative path is meant from the playbook's folder."""
    found = {}
    for model in models:
        if model.get("manifest"):
            path = Path(variables.get("playbook_dir", "."), model["manifest"])
            try:
                found[model["name"]] = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as exc:
                reason = exc.strerror if isinstance(exc, OSError) else f"no JSON: {exc}"
                raise AnsibleLookupError(
                    f"{model['name']}: the manifest {path} can't be read: {reason}"
                ) from exc
    return found
