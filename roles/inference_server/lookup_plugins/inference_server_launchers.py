"""What the launchers that come with the role say to --help, read on the controller."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: inference_server_launchers
short_description: The --help of launchers that come with the role, by their file's name
author: recover-and-bench
options:
  _terms:
    description: The list of their names.
    required: true
"""
FILES = Path(__file__).resolve().parent.parent / "files"
HELP_S = 30.0


class LookupModule(LookupBase):  # type: ignore[misc,unused-ignore] # Ansible ships no types
    """Runs the role's own programs on the controller."""

    def run(
        self,
        terms: list[list[str]],
        variables: Any = None,  # noqa: ANN401, ARG002 - Ansible's signature
        **_: Any,  # noqa: ANN401 - as above
    ) -> list[dict[str, str]]:
        return [{str(name): help_of(FILES / str(name)) for name in names} for names in terms]


def help_of(launcher: Path) -> str:
    """A launcher needs its engine only to serve: any Python can print its flags."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(launcher), "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HELP_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        said = getattr(exc, "stderr", None) or exc
        raise AnsibleLookupError(f"{launcher} does not say its flags: {said}") from exc
    return done.stdout
