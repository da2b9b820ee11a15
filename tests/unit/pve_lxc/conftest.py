"""The role's pure code is imported as Ansible imports it: below `ansible.module_utils`."""

from pathlib import Path

import ansible.module_utils
import pytest

ROOT = Path(__file__).resolve().parents[3]
_MODULE_UTILS = str(ROOT / "roles/pve_lxc/module_utils")
if _MODULE_UTILS not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_MODULE_UTILS)


@pytest.fixture(scope="session")
def cases() -> Path:
    return ROOT / "tests/data/lxc-conf"
