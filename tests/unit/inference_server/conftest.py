"""The role's pure code is imported as Ansible imports it: below `ansible.module_utils`."""

import importlib.util
from pathlib import Path
from types import ModuleType

import ansible.module_utils
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/inference_server"
_MODULE_UTILS = str(ROLE / "module_utils")
if _MODULE_UTILS not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_MODULE_UTILS)


def load(path: str) -> ModuleType:
    """A file of the role as a module: programs, modules and filters are no packages."""
    spec = importlib.util.spec_from_file_location(f"inference_server_{Path(path).stem}", ROLE / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def role() -> Path:
    return ROLE


@pytest.fixture(scope="session")
def load_file():
    return load


@pytest.fixture(scope="session")
def templates() -> dict:
    """The engine templates, as the role's variables declare them."""
    declared = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__inference_server_templates"]
    declared["llamacpp"]["requirements"] = str(ROLE / "files/llamacpp-requirements.txt")
    return declared


@pytest.fixture(scope="session")
def help_of():
    """The recorded --help of an engine: llama_server, or sglang_ddtree_assumed (see its first lines)."""
    return lambda name: (Path(__file__).parent / f"data/{name}.help.txt").read_text()
