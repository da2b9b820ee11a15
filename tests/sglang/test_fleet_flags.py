"""The fleet's configurations against the real build: upstream knows all flags but those of a fork."""

from __future__ import annotations

import pytest
import yaml
from ansible.module_utils.inference_server.configurations import Installed, Place, Site, serve
from ansible.module_utils.inference_server.engines import engine_from
from ansible.module_utils.inference_server.flags import Option

from tests.sglang.conftest import PROJECT

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1200)]


def read(path: str) -> dict:
    return yaml.safe_load((PROJECT / path).read_text())


@pytest.fixture(scope="module")
def installed(deployed) -> Installed:
    options = {each["name"]: Option.from_json(each) for each in deployed.answer["options"]}
    return Installed(deployed.answer["build"], options)


def problems(installed: Installed) -> dict[str, tuple[str, ...]]:
    shared = read("group_vars/all/engines.yml")
    templates = read("roles/inference_server/vars/main.yml")["__inference_server_templates"]
    engine = engine_from(
        "sglang",
        {**shared["engines"]["sglang"], "aliases": shared["sglang_ddtree_aliases"]},
        templates,
        "/lib",
    )
    models = read("group_vars/fleet/models.yml")["models"]
    site = Site("127.0.0.1", 30000, {name: Place(name, f"/dev/shm/{name}", None) for name in models})
    declared = read("group_vars/fleet/configurations.yml")["configurations"]
    return {name: serve(name, each, engine, installed, site).problems for name, each in declared.items()}


def test_upstream_refuses_only_what_is_in_forks(installed):
    refused = problems(installed)

    assert {name for name, each in refused.items() if each} == {name for name in refused if "ddtree" in name}
    said = {problem.partition(" (")[0] for each in refused.values() for problem in each}
    assert said == {"--speculative-ddtree-budget is unknown to this build"}


@pytest.mark.parametrize(
    ("said", "used"),
    [
        ("mamba-scheduler-strategy", "mamba-radix-cache-strategy"),
        ("cuda-graph-max-bs", "cuda-graph-max-bs-decode"),
        ("cuda-graph-bs", "cuda-graph-bs-decode"),
        ("piecewise-cuda-graph-max-tokens", "cuda-graph-max-bs-prefill"),
        ("piecewise-cuda-graph-tokens", "cuda-graph-bs-prefill"),
        ("tensor-parallel-size", "tp-size"),
    ],
)
def test_older_names_are_mapped_to_those_of_this_build(installed, said, used):
    templates = read("roles/inference_server/vars/main.yml")["__inference_server_templates"]
    engine = engine_from("sglang", {"venv": "/opt/sglang"}, templates, "/lib")

    assert engine.names.choose(said, installed.options) == used


@pytest.mark.parametrize(
    "flag",
    [
        *("tp-size", "context-length", "mem-fraction-static", "max-running-requests", "attention-backend"),
        *("speculative-algorithm", "speculative-draft-model-path", "speculative-num-draft-tokens"),
        *("speculative-num-steps", "speculative-eagle-topk", "mamba-radix-cache-strategy"),
        *("enable-metrics", "enable-cache-report", "api-key"),
    ],
)
def test_the_build_has_the_flags_of_the_story(installed, flag):
    assert flag in installed.options


def test_choices_that_the_build_prints_are_checked(installed):
    assert "triton" in installed.options["attention-backend"].choices
    assert "no_buffer" in installed.options["mamba-radix-cache-strategy"].choices
