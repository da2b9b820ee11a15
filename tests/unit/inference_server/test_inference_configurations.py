"""From a declared configuration to the command line and the description."""

import pytest
from ansible.module_utils.inference_server.configurations import (
    Installed,
    Place,
    Site,
    serve,
)
from ansible.module_utils.inference_server.declared import check_configuration
from ansible.module_utils.inference_server.engines import engine_from
from ansible.module_utils.inference_server.flags import parse_help

AUTO = {"engine": "llamacpp", "model": "tiny", "tensor_parallelism": 1, "context_tokens": 2048}
DDTREE = {
    "engine": "sglang",
    "model": "qwen",
    "draft_model": "draft",
    "tensor_parallelism": 4,
    "context_tokens": 32768,
    "gpus": [0, 1, 2, 3],
    "environment": {"A": 1},
    "flags": {"speculative-algorithm": "DDTREE", "ddtree-budget": 15, "ddtree-enable": True},
}
ALIASES = {"ddtree-budget": ["speculative-ddtree-budget"], "ddtree-enable": []}


@pytest.fixture
def engines(templates):
    declared = {
        "llamacpp": {"template": "llamacpp", "venv": "/opt/llamacpp", "flags": {"threads": 1, "parallel": 4}},
        "sglang": {
            "template": "sglang",
            "venv": "/opt/sglang",
            "aliases": ALIASES,
            "environment": {"B": "2"},
        },
    }
    return {name: engine_from(name, each, templates, "/usr/local/lib/x") for name, each in declared.items()}


@pytest.fixture
def site():
    places = {
        "tiny": Place("tiny", "/dev/shm/tiny", "sha256:1", "tiny.gguf"),
        "qwen": Place("qwen", "/dev/shm/qwen", "sha256:2"),
        "draft": Place("draft", "/dev/shm/draft", "sha256:3"),
    }
    return Site("127.0.0.1", 30000, places)


def build(help_of, name):
    return Installed(f"{name} 1.0", parse_help(help_of(name)))


def test_the_command_line_of_the_baseline(engines, site, help_of):
    served = serve("tp1-auto", AUTO, engines["llamacpp"], build(help_of, "llama_server"), site)

    assert served.problems == ()
    assert " ".join(served.argv) == (
        "/opt/llamacpp/bin/python /usr/local/lib/x/llama_server.py --alias tiny --ctx-size 8192"
        " --host 127.0.0.1 --metrics --model /dev/shm/tiny/tiny.gguf --parallel 4 --port 30000"
        " --spec-type none --threads 1"
    )


def test_the_command_line_of_a_speculating_sglang(engines, site, help_of):
    served = serve("tp4-ddtree-b15", DDTREE, engines["sglang"], build(help_of, "sglang_ddtree"), site)

    assert served.problems == ()
    assert " ".join(served.argv) == (
        "/opt/sglang/bin/python -m sglang.launch_server --context-length 32768 --enable-cache-report"
        " --enable-metrics --host 127.0.0.1 --model-path /dev/shm/qwen --port 30000 --served-model-name qwen"
        " --speculative-algorithm DDTREE --speculative-ddtree-budget 15"
        " --speculative-draft-model-path /dev/shm/draft --tp-size 4"
    )
    assert served.environment == {
        "A": "1",
        "B": "2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    }


def test_the_description_names_what_is_measured_and_where_it_answers(engines, site, help_of):
    served = serve(
        "tp1-auto", AUTO | {"port": 31000}, engines["llamacpp"], build(help_of, "llama_server"), site
    )

    assert served.description == {
        "schema_version": 1,
        "configuration": "tp1-auto",
        "unit": "inference-tp1-auto.service",
        "url": "http://127.0.0.1:31000",
        "engine": "llamacpp",
        "engine_build": "llama_server 1.0",
        "model": "tiny",
        "served_model": "tiny",
        "model_path": "/dev/shm/tiny",
        "model_digest": "sha256:1",
        "draft_model": None,
        "draft_model_path": None,
        "tensor_parallelism": 1,
        "context_tokens": 2048,
        "flags": {"ctx-size": 8192, "metrics": True, "parallel": 4, "spec-type": "none", "threads": 1},
        "adapter": "llamacpp",
        "python": "/opt/llamacpp/bin/python",
        "visible_gpus": None,
        "api_key_file": None,
    }


def test_the_description_names_the_gpus_the_draft_and_where_the_key_is(templates, site, help_of):
    declared = {"template": "sglang", "venv": "/opt/sglang", "credentials": {"api_key": "/etc/keys/api"}}
    engine = engine_from("sglang", {**declared, "aliases": ALIASES}, templates, "/lib")

    served = serve("x", DDTREE, engine, build(help_of, "sglang_ddtree"), site)

    told = served.description
    assert told["visible_gpus"] == "0,1,2,3"
    assert (told["draft_model"], told["draft_model_path"]) == ("draft", "/dev/shm/draft")
    assert told["api_key_file"] == "/etc/keys/api"
    assert served.credentials == {"api_key": "/etc/keys/api"}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - told, not listened on
        ("::", "[::1]"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)
def test_a_client_on_the_node_finds_a_server_that_listens_elsewhere(engines, site, help_of, host, url):
    there = Site(host, 30000, site.places)

    served = serve("x", AUTO, engines["llamacpp"], build(help_of, "llama_server"), there)

    assert served.description["url"] == f"http://{url}:30000"
    assert served.argv[served.argv.index("--host") + 1] == host


def test_extra_arguments_come_last_as_they_are_and_are_part_of_what_is_measured(engines, site, help_of):
    declared = AUTO | {"extra_arguments": ["--batch-size=512", "--ubatch-size", "64"]}

    served = serve("x", declared, engines["llamacpp"], build(help_of, "llama_server"), site)

    assert served.problems == ()
    assert served.argv[-3:] == ("--batch-size=512", "--ubatch-size", "64")
    assert served.description["flags"]["extra_arguments"] == declared["extra_arguments"]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--batch-sice=512"], "--batch-sice is unknown to this build (nearest known: --batch-size"),
        (["--threads", "2"], "the flag threads is set twice: once in extra_arguments"),
        (["--batch-size"], "--batch-size needs a value, but is set to true"),
        (["--no-slots", "--no-warmup=1"], "--no-warmup takes no value, but is set to '1'"),
    ],
)
def test_extra_arguments_are_checked_like_flags(engines, site, help_of, extra, message):
    declared = AUTO | {"extra_arguments": extra}

    (problem,) = serve("x", declared, engines["llamacpp"], build(help_of, "llama_server"), site).problems

    assert problem.startswith(message)


def test_the_flags_of_a_description_hold_no_path_but_the_draft_model_itself(engines, site, help_of):
    installed = build(help_of, "sglang_ddtree")

    flags = serve("x", DDTREE, engines["sglang"], installed, site).description["flags"]

    assert flags["speculative-draft-model-path"] == "draft@sha256:3"
    assert not any("/dev/shm" in str(value) for value in flags.values())


def test_a_flag_that_the_build_lacks_is_a_problem_of_its_configuration(engines, site, help_of):
    declared = DDTREE | {"flags": {"speculative-ddtree-budgets": 15}}

    served = serve("x", declared, engines["sglang"], build(help_of, "sglang_ddtree"), site)

    (problem,) = served.problems
    assert "--speculative-ddtree-budgets is unknown" in problem
    assert "--speculative-ddtree-budget" in problem


def test_a_renamed_flag_takes_the_name_of_the_build(engines, site, help_of):
    installed = build(help_of, "sglang_ddtree")
    without = {name: option for name, option in installed.options.items() if name != "tp-size"}

    served = serve("x", DDTREE, engines["sglang"], Installed("b", without), site)

    assert "--tensor-parallel-size" in served.argv
    # The role's own words are no news to an operator.
    assert served.renamed == {}


def test_a_renamed_flag_of_a_configuration_is_told(engines, site, help_of):
    declared = DDTREE | {"flags": {"mamba-scheduler-strategy": "no_buffer", "cuda-graph-max-bs": 8}}

    served = serve("x", declared, engines["sglang"], build(help_of, "sglang_ddtree"), site)

    assert served.problems == ()
    assert served.renamed == {
        "mamba-scheduler-strategy": "mamba-radix-cache-strategy",
        "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    }
    assert served.description["flags"]["mamba-radix-cache-strategy"] == "no_buffer"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"engine": "lamacpp"}, "no engine lamacpp; nearest: llamacpp; known: llamacpp, sglang"),
        (
            {"model": "tinny"},
            "its model tinny is not among the models of this node; nearest: tiny; known: tiny",
        ),
        ({"draft_model": "x"}, "its draft_model x is not among the models of this node; known: tiny"),
        ({"tensor_parallelism": "1"}, "tensor_parallelism must be a whole number from 1, not '1'"),
        ({"tensor_parallelism": 2}, "must be 1: the engine llamacpp has no such setting"),
        ({"context_tokens": 0}, "context_tokens must be a whole number from 1, not 0"),
        ({"port": 80}, "port must be 1024 to 65535, not 80"),
        ({"flag": {}}, "unknown key flag; nearest: flags"),
        ({"flags": ["x"]}, "flags must be a mapping"),
        ({"flags": {"port": 1}}, "flag port is filled in by the role; say port instead"),
        ({"flags": {"alias": "x"}}, "flag alias is filled in by the role; say nothing: the role sets"),
        ({"flags": {"ctx-size": 1}}, "flag ctx-size is filled in by the role; say context_tokens instead"),
        ({"flags": {"threads": None}}, "flag threads: has no value"),
        (
            {"flags": {"spec-draft-model": "x"}},
            "flag spec-draft-model is filled in by the role; say draft_model",
        ),
        ({"extra_arguments": ["--port=1"]}, "flag port is filled in by the role; say port instead"),
        ({"extra_arguments": "--threads 1"}, "extra_arguments must be a list of texts"),
        ({"extra_arguments": ["1", "--threads"]}, "extra_arguments must begin with a flag, not 1"),
        ({"gpus": [0, 0]}, "gpus names one twice: 0, 0"),
        ({"environment": ["A"]}, "environment must be a mapping"),
    ],
)
def test_a_contradiction_is_found_without_a_host(engines, change, message):
    problems = check_configuration("tp1-auto", AUTO | change, engines, ["tiny"])

    assert len(problems) == 1
    assert problems[0].startswith("configuration tp1-auto: ")
    assert message in problems[0]


def test_a_missing_key_is_named(engines):
    declared = {key: value for key, value in AUTO.items() if key != "context_tokens"}

    assert check_configuration("tp1-auto", declared, engines, ["tiny"]) == [
        "configuration tp1-auto: context_tokens is missing"
    ]


@pytest.mark.parametrize("name", ["", "a b", "x\n", "../x", "-x", "a.b", "x" * 81])
def test_a_name_that_cannot_be_a_unit_is_refused(engines, name):
    (problem,) = check_configuration(name, AUTO, engines, ["tiny"])

    assert "letters, digits" in problem


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"template": "sglan", "venv": "/x"}, "no template sglan; nearest: sglang; known: llamacpp, sglang"),
        ({"template": "sglang"}, "say where it is installed"),
        ({"template": "sglang", "command": "python -m x"}, "command must be a list"),
        ({"template": "sglang", "command": ["python"]}, "must begin with an absolute path"),
        (
            {"template": "sglang", "venv": "/x", "enviroment": {}},
            "unknown key enviroment; nearest: environment",
        ),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused(templates, declared, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")) as caught:
        engine_from("e", declared, templates, "/lib")

    assert str(caught.value).startswith("engine e: ")


def test_an_engine_may_be_started_by_its_own_command(templates):
    engine = engine_from("e", {"template": "sglang", "command": ["/opt/run", "serve"]}, templates, "/lib")

    assert engine.command == ("/opt/run", "serve")
