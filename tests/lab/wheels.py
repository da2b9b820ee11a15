"""The wheels that the nodes will ask for, fetched while there is a network: a room has none."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.lab import paths
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

WHEELHOUSE = paths.PROJECT / "roles/node_python/files/wheelhouse.py"
# Where the role looks: node_python_cache.
CACHE = paths.PROJECT / ".cache/wheelhouse"
ASK_PYTHON = "import platform as p; print(*p.python_version_tuple()[:2], p.libc_ver()[1], p.machine())"


def fetch(tree: Path) -> list[Path]:
    """Build the wheelhouse of each requirements file that the roles ship, for the Python of this root tree.

    Those that are there are kept.
    """
    major, minor, glibc, machine = _ask(tree)
    files = sorted((paths.PROJECT / "roles").glob("*/files/*requirements.txt"))
    for requirements in files:
        done = subprocess.run(
            [
                *(sys.executable, WHEELHOUSE, "--requirements", requirements, "--cache", CACHE),
                *("--python", f"{major}.{minor}", "--machine", machine, "--glibc", glibc),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stdout or done.stderr).strip().splitlines()[-1:] or ["{}"]
            try:
                reason = json.loads(last[0]).get("error", last[0])
            except ValueError:
                reason = last[0]
            raise LabError(f"the wheels of {requirements.name} can't be fetched: {reason}")
    return files


def _ask(tree: Path) -> list[str]:
    """What the nodes' Python is: its version, the C library's, and the machine's architecture."""
    command = ["chroot", str(tree), "python3", "-c", ASK_PYTHON]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
