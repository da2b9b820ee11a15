"""The role's code as Ansible imports it, and its module run like a function on a stand-in nvidia-smi."""

import importlib.util
import json
import sys
from pathlib import Path

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

ROOT = Path(__file__).resolve().parents[3]
_MODULE_UTILS = str(ROOT / "roles/gpu_state/module_utils")
if _MODULE_UTILS not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_MODULE_UTILS)
TOOL = ROOT / "tests/sim/nvidia_smi.py"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem + "_under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sim = load(TOOL)
module = load(ROOT / "roles/gpu_state/library/gpu_state.py")


class Host:
    """A host with GPUs: change its state, run the module, look at what was called."""

    def __init__(self, folder, capsys):
        self.path = folder / "gpus.json"
        self.locks = folder / "run/gpu-clocks.json"
        self._capsys = capsys
        self.write(sim.new_state())

    def read(self):
        return json.loads(self.path.read_text())

    def write(self, state):
        self.path.write_text(json.dumps(state))

    def set_gpu(self, index, **fields):
        state = self.read()
        state["gpus"][index].update({name.replace("__", "."): value for name, value in fields.items()})
        self.write(state)

    def fault(self, **faults):
        state = self.read()
        state["faults"] = faults
        self.write(state)

    def gpu(self, index):
        return self.read()["gpus"][index]

    def reboot(self):
        state = self.read()
        sim.reboot(state)
        self.write(state)
        self.locks.unlink(missing_ok=True)  # /run is a tmpfs

    def run(self, declared=None, *, check=False, command=f"{sys.executable} {TOOL}"):
        """The module's result; what nvidia-smi was called with is in `calls`."""
        state = self.read()
        state["calls"] = []
        self.write(state)
        args = {
            "declared": declared or {},
            "nvidia_smi": command,
            "locks": str(self.locks),
            "_ansible_check_mode": check,
        }
        with patch_module_args(args), pytest.raises(SystemExit):
            module.main()
        result = json.loads(self._capsys.readouterr().out)
        result["calls"] = [" ".join(call) for call in self.read()["calls"]]
        return result


@pytest.fixture
def host(tmp_path, capsys, monkeypatch):
    host = Host(tmp_path, capsys)
    monkeypatch.setenv("NVIDIA_SMI_STATE", str(host.path))
    return host
