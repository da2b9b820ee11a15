"""A scratch Proxmox VE host, and a way to run the role's modules on it."""

import json
import os
import sys
from pathlib import Path

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

sys.path.insert(0, str(Path(__file__).parent))
from pve_lxc_scratch import CONF, DEVICES, PCT, ROLE, ROOT, Scratch, load

_MODULE_UTILS = str(ROLE / "module_utils")
if _MODULE_UTILS not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_MODULE_UTILS)


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    scratch = Scratch(tmp_path)
    for folder in ("lxc", "dev", "bin", "driver"):
        (tmp_path / folder).mkdir()
    scratch.conf.write_text(CONF)
    scratch.put("devices", DEVICES)
    scratch.put("bin/pct", PCT)
    (tmp_path / "bin/pct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    return scratch


@pytest.fixture(scope="session")
def cases():
    return ROOT / "tests/data/lxc-conf"


@pytest.fixture
def run(capsys):
    """Run a module of the role as Ansible does and return its result."""

    def call(name, *, check=False, **arguments):
        module = load(ROLE / f"library/{name}.py")
        given = {**arguments, "_ansible_check_mode": check, "_ansible_diff": True}
        with patch_module_args(given), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    return call
