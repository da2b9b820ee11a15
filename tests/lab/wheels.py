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
# Debian 12's, which the machines' root filesystem is made of.
PYTHON, GLIBC, MACHINE = "3.11", "2.36", "x86_64"


def fetch() -> list[Path]:
    """Build the wheelhouse of each requirements file that the roles ship; those that are there are kept."""
    files = sorted((paths.PROJECT / "roles").glob("*/files/*requirements.txt"))
    for requirements in files:
        done = subprocess.run(
            [
                *(sys.executable, WHEELHOUSE, "--requirements", requirements, "--cache", CACHE),
                *("--python", PYTHON, "--machine", MACHINE, "--glibc", GLIBC),
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
