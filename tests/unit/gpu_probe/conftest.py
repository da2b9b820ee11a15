"""The role's pure code, importable as it is in a play; and its evidence cases."""

import sys
from pathlib import Path

import ansible.module_utils
import pytest

PROJECT = Path(__file__).parents[3]
for role in ("gpu_probe", "pve_lxc"):
    folder = str(PROJECT / "roles" / role / "module_utils")
    if folder not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(folder)
sys.path.insert(0, str(Path(__file__).parent))

import evidence_cases  # noqa: E402 - found by the path above


@pytest.fixture
def evidence():
    """Load one case by name: `evidence("story")`."""
    return evidence_cases.load
