"""The role's pure code is imported as Ansible imports it: below `ansible.module_utils`."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import ansible.module_utils
import pytest
import yaml

from .control_machine import Machine

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


# SGLang as it is released, and with what forks are assumed to add for DDTree.
SGLANG = {
    "sglang": ("sglang-0.5.23.txt",),
    "sglang_ddtree": ("sglang-0.5.23.txt", "ddtree-by-algorithm.assumed.txt"),
    "sglang_ddtree_switch": ("sglang-0.5.23.txt", "ddtree-by-switch.assumed.txt"),
}


@pytest.fixture(scope="session")
def help_of():
    """The recorded --help of an engine: llama_server, or one of SGLANG."""

    def read(name: str) -> str:
        if name in SGLANG:
            return "".join((ROOT / "tests/data/sglang-help" / part).read_text() for part in SGLANG[name])
        return (Path(__file__).parent / f"data/{name}.help.txt").read_text()

    return read


@pytest.fixture(scope="session")
def filters():
    return load("filter_plugins/inference_server.py").FilterModule().filters()


def read(path: str) -> dict:
    return yaml.safe_load((ROOT / "group_vars" / path).read_text())


def resolve(value, variables: dict):
    """The few plain references in group_vars, as Ansible resolves them."""
    if isinstance(value, dict):
        return {key: resolve(each, variables) for key, each in value.items()}
    if isinstance(value, str) and value.startswith("{{"):
        return variables[value.strip("{} ")]
    return value


def options_of(text: str) -> list[dict]:
    """A --help as the module that asks for it answers."""
    parse = importlib.import_module("ansible.module_utils.inference_server.flags").parse_help
    return [option.to_json() for option in parse(text).values()]


@pytest.fixture
def settings_of(templates):
    """The role's settings for an inventory of the project; with other values for some of its variables."""

    def make(inventory: str, **changes) -> dict:
        variables = read("all/engines.yml") | read(f"{inventory}/models.yml") | changes
        engines = variables if inventory == "fleet" else read("lab/engines.yml")
        configurations = read(f"{inventory}/configurations.yml")["configurations"]
        return {
            "configurations": resolve(configurations, variables),
            "engines": resolve(engines["engines"], variables),
            "templates": templates,
            "model_paths": {name: f"/dev/shm/{name}" for name in variables["models"]},
            "model_digests": {name: f"sha256:{name}" for name in variables["models"]},
            "deferred_models": {},
            "host": "127.0.0.1",
            "port": 30000,
            "unit_dir": "/etc/systemd/system",
            "description_dir": "/etc/inference-server/configurations",
            "program_dir": "/usr/local/lib/inference-server",
            "unit_template": (ROLE / "templates/inference.service.j2").read_text(),
            "unit": {
                "ansible_managed": "Ansible managed",
                "user": "inference",
                "supplementary_groups": [],
                "stop_timeout_s": 30,
                "memlock": "infinity",
                "hardening_enabled": True,
            },
        }

    return make


@pytest.fixture
def node_with_all(filters, help_of):
    """What a node says that has all that some settings need."""

    def make(settings: dict, sglang: str = "sglang_ddtree") -> dict:
        needs = filters["inference_server_needs"](settings)
        helps = {"llamacpp": "llama_server", "sglang": sglang}
        return {
            "engines": {
                engine["name"]: {
                    "build": f"{engine['name']} 1.0",
                    "problem": None,
                    "options": options_of(help_of(helps[engine["name"]])),
                }
                for engine in needs["engines"]
            },
            "models": {
                each["name"]: {
                    "path": each["path"],
                    "file": "m.gguf" if each["as_file"] else None,
                    "problem": None,
                }
                for each in needs["models"]
            },
            "credentials": {},
            "gpus": [f"GPU-{number}" for number in range(8)],
        }

    return make


@pytest.fixture(scope="session")
def control():
    return load("files/inference_control.py")


@pytest.fixture
def machine(control, tmp_path):
    """A node with two configurations, of which none runs."""
    return Machine(control, tmp_path)
