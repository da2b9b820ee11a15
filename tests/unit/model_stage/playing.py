"""The role's module as a function, with the real stager behind it."""

import importlib.util
import json

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

from .conftest import REPO, ROLE

if str(ROLE / "module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(ROLE / "module_utils"))


def load(path):
    spec = importlib.util.spec_from_file_location(f"model_stage_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


module = load(ROLE / "library/model_stage.py")
program_lookup = load(ROLE / "lookup_plugins/model_stage_program.py")


def model(name, cache, **fields):
    sources = [{"kind": "hf_cache", "path": str(cache.path)}]
    return {"name": name, "repo": REPO, "revision": "main", "sources": sources, **fields}


def run_module(capsys, arguments):
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)
