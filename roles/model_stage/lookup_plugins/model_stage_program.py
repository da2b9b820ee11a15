"""The stager as an archive in the module's arguments: pushing it then costs no round trip of its own."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: model_stage_program
short_description: The stager's package as a zip archive in base64, with the digest of its files
author: recover-and-bench
options:
  _terms:
    description: The package's folder.
    required: true
"""
FIXED_TIME = (2020, 1, 1, 0, 0, 0)


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore] # Ansible ships no types
    """Reads the role's own files."""

    def run(self, terms: list[str], variables: Any = None, **_: Any) -> list[dict[str, str]]:  # noqa: ANN401, ARG002 - Ansible's signature
        return [pack(Path(term)) for term in terms]


def pack(folder: Path) -> dict[str, str]:
    """The same files make the same archive."""
    files = sorted(folder.glob("*.py"))
    if not files:
        raise AnsibleLookupError(f"{folder} has no Python files")
    digest, room = hashlib.sha256(), io.BytesIO()
    with zipfile.ZipFile(room, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            content = path.read_bytes()
            digest.update(json.dumps([path.name, hashlib.sha256(content).hexdigest()]).encode())
            archive.writestr(zipfile.ZipInfo(f"{folder.name}/{path.name}", FIXED_TIME), content)
    return {"digest": digest.hexdigest(), "zip": base64.b64encode(room.getvalue()).decode()}
