"""The filters over what the project ships: each configuration of lab and fleet is one that can be served."""

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.inference_server.flags import parse_help

from tests.unit.inference_server.conftest import read


@pytest.fixture(params=["lab", "fleet"])
def shipped(request, settings_of) -> dict:
    """The settings of the role for an inventory of the project."""
    return settings_of(request.param)


@pytest.fixture
def probe(shipped, node_with_all) -> dict:
    return node_with_all(shipped)


def test_what_is_shipped_has_no_contradiction(shipped, filters):
    assert filters["inference_server_needs"](shipped)["problems"] == []


def test_each_shipped_configuration_becomes_a_unit_and_a_description(shipped, filters, probe):
    wanted = filters["inference_server_wanted"](shipped, probe)

    assert wanted["problems"] == []
    assert wanted["names"] == list(shipped["configurations"])
    assert len(wanted["files"]) == 2 * len(wanted["names"])


@pytest.mark.parametrize("hardened", [True, False], ids=["hardened", "plain"])
def test_systemd_finds_nothing_wrong_with_a_shipped_unit(shipped, filters, probe, tmp_path, hardened):
    program = tmp_path / "venv/bin/python"
    program.parent.mkdir(parents=True)
    program.symlink_to("/bin/true")
    for engine in shipped["engines"].values():
        engine |= {"venv": str(tmp_path / "venv"), "credentials": {"api_key": "/etc/keys/api"}}
    shipped["unit"] |= {"hardening_enabled": hardened, "supplementary_groups": ["video", "render"]}
    units = [
        each
        for each in filters["inference_server_wanted"](shipped, probe)["files"]
        if each["path"].endswith(".service")
    ]
    paths = [tmp_path / Path(unit["path"]).name for unit in units]
    for path, unit in zip(paths, units, strict=True):
        path.write_text(unit["content"])

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, check=False
    )

    assert paths
    assert [line for line in done.stderr.splitlines() if "inference-" in line] == []


def test_the_story_has_all_its_configurations():
    names = set(read("fleet/configurations.yml")["configurations"])
    kinds = ("auto", "dflash-linear", *(f"ddtree-b{budget}" for budget in (8, 12, 15, 16, 32, 64)))

    assert names == {f"tp{tp}-{kind}" for tp in (1, 4, 8) for kind in kinds} | {"tp8-kimi-auto", "tp8-eagle3"}


def test_only_engines_that_are_used_are_asked(shipped, filters):
    unused = {"template": "sglang"}  # incomplete, and nobody's business

    needs = filters["inference_server_needs"](shipped | {"engines": {**shipped["engines"], "other": unused}})

    assert needs["problems"] == []
    assert "other" not in {engine["name"] for engine in needs["engines"]}


def test_a_model_that_several_configurations_lack_is_one_sentence(shipped, filters, probe):
    for place in probe["models"].values():
        place["problem"] = "is not at /dev/shm/x: stage it first (playbooks/stage.yml)"

    problems = filters["inference_server_model_problems"](shipped, probe)

    assert len(problems) == len(set(problems)) <= 4
    assert problems[0].startswith("configurations tp1-auto, ")
    assert "is not at /dev/shm/x: stage it first" in problems[0]


def test_tensor_parallelism_above_the_gpus_is_one_sentence(shipped, filters, probe):
    probe["gpus"] = probe["gpus"][:4]

    problems = filters["inference_server_gpu_problems"](shipped, probe)

    if any(each["engine"] == "llamacpp" for each in shipped["configurations"].values()):
        assert problems == []
        return
    (problem,) = problems
    assert problem.startswith("configurations tp8-auto, tp8-dflash-linear, ")
    assert "its tensor_parallelism of 8 needs as many GPUs, the node has 4: 0 (GPU-0), " in problem


def test_an_engine_that_is_told_to_needs_no_gpu(shipped, filters, probe):
    probe["gpus"] = []
    for engine in shipped["engines"].values():
        engine["gpu"] = False

    assert filters["inference_server_gpu_problems"](shipped, probe) == []


def test_a_secret_that_is_not_there_lasts(shipped, filters, probe):
    (name,) = {each["engine"] for each in shipped["configurations"].values()}
    shipped["engines"][name]["credentials"] = {"api_key": "/etc/keys/api"}
    probe["credentials"] = {"/etc/keys/api": "is not at /etc/keys/api: put it there"}
    for each in probe["engines"].values():
        each["fault"] = None

    assert filters["inference_server_lasting_problems"](shipped, probe) == [
        f"engine {name}: its api_key is not at /etc/keys/api: put it there"
    ]


def test_what_was_renamed_is_told_once(shipped, filters, probe, help_of):
    for engine, each in probe["engines"].items():
        if engine == "sglang":
            text = help_of("sglang_ddtree").replace("mamba-radix-cache-strategy", "mamba-scheduler-strategy")
            each["options"] = [option.to_json() for option in parse_help(text).values()]

    wanted = filters["inference_server_wanted"](shipped, probe)

    told = ["renamed for this build: mamba-radix-cache-strategy -> mamba-scheduler-strategy"]
    assert wanted["problems"] == []
    assert wanted["notes"] == (told if "sglang" in probe["engines"] else [])


def test_a_server_that_others_reach_without_a_key_is_told(shipped, filters, probe):
    (name,) = {each["engine"] for each in shipped["configurations"].values()}
    shipped["host"] = "10.0.0.7"
    shipped["engines"][name].pop("credentials", None)

    assert (
        "listens on 10.0.0.7 without an API key"
        in filters["inference_server_wanted"](shipped, probe)["notes"]
    )

    shipped["engines"][name]["credentials"] = {"api_key": "/etc/keys/api"}
    assert filters["inference_server_wanted"](shipped, probe)["notes"] == []


def test_without_its_model_or_engine_a_configuration_is_kept_as_it_is(shipped, filters, probe):
    for engine in probe["engines"].values():
        engine |= {"problem": "engine is not installed", "build": None, "options": []}

    wanted = filters["inference_server_wanted"](shipped, probe)

    assert wanted["files"] == []
    assert wanted["keep"] == list(shipped["configurations"])


def test_the_same_settings_make_the_same_files(shipped, filters, probe):
    assert filters["inference_server_wanted"](shipped, probe) == filters["inference_server_wanted"](
        shipped, probe
    )


def test_every_problem_is_told_at_once(shipped, filters):
    first, second = list(shipped["configurations"])[:2]
    shipped["configurations"][first]["modle"] = "x"
    shipped["configurations"][second]["engine"] = "nothing"

    problems = filters["inference_server_needs"](shipped)["problems"]

    assert [problem.split(":")[0] for problem in problems] == [
        f"configuration {first}",
        f"configuration {second}",
    ]


@pytest.mark.parametrize("hardened", [True, False])
def test_hardening_is_all_or_nothing(shipped, filters, probe, hardened):
    shipped["unit"]["hardening_enabled"] = hardened

    unit = filters["inference_server_wanted"](shipped, probe)["files"][0]["content"]

    assert ("ProtectSystem=strict" in unit) == hardened
    assert "Restart=no\n" in unit
    assert "KillMode=control-group\n" in unit
    assert "LimitMEMLOCK=infinity\n" in unit
    assert "TimeoutStopSec=30\n" in unit
    # Each of these would take the GPUs away, or forbid to compile for them.
    assert not any(
        line.startswith(("PrivateDevices=", "MemoryDenyWriteExecute=")) for line in unit.splitlines()
    )
