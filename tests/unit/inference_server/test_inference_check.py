"""What is refused before anything is installed or staged, and what must not be refused yet."""

import getpass
import json
import sys

import pytest
from ansible.module_utils.testing import patch_module_args

HOME = {"path": "/dev/shm/m", "file": None}
NOT_STAGED = {**HOME, "problem": "is not at /dev/shm/m: stage it first (playbooks/stage.yml)"}
SILENT = {"build": None, "options": [], "cached": False, "fault": "silent"}


@pytest.fixture(scope="module")
def filters(load_file):
    return load_file("filter_plugins/inference_server.py").FilterModule().filters()


@pytest.fixture(scope="module")
def helps(load_file, role):
    """As the lookup gives them."""
    lookup = load_file("lookup_plugins/inference_server_launchers.py").LookupModule()
    return lookup.run([["llama_server.py"]])[0]


@pytest.fixture
def declare(templates):
    """The settings of one configuration of one engine."""

    def make(flags, engine):
        name = engine["template"]
        wanted = {"engine": name, "model": "m", "tensor_parallelism": 1, "context_tokens": 512}
        return {
            "configurations": {"tp1": {**wanted, "flags": flags}},
            "engines": {name: engine},
            "templates": templates,
            "model_paths": {"m": "/dev/shm/m"},
            "model_digests": {},
            "deferred_models": {},
            "program_dir": "/usr/local/lib/inference-server",
            "host": "127.0.0.1",
            "port": 30000,
        }

    return make


LLAMA = {"template": "llamacpp", "venv": "/opt/llamacpp"}
SGLANG = {"template": "sglang", "venv": "/opt/sglang"}


def node(engine, model=NOT_STAGED):
    """A node's answer."""
    name, answer = engine
    return {"engines": {name: answer}, "models": {f"m for {name}": model}}


def test_the_lookup_reads_what_a_node_would_answer(helps, help_of):
    assert helps["llama_server.py"].split() == help_of("llama_server").split()


@pytest.mark.parametrize("fault", ["missing", "launcher", "silent", None])
def test_the_flags_of_an_engine_that_the_role_brings_are_those_of_its_launcher(
    filters, helps, declare, fault
):
    # None: an older launcher is there, which knew the flag; it will be replaced.
    old = [{"name": "spec-tipe", "takes_value": True, "choices": []}] if fault is None else []
    there = node(("llamacpp", {**SILENT, "fault": fault, "problem": fault, "options": old}))

    wrong, right = declare({"spec-tipe": "none"}, LLAMA), declare({"spec-type": "none"}, LLAMA)
    (problem,) = filters["inference_server_flag_problems"](wrong, there, helps)

    assert problem == (
        "configuration tp1: --spec-tipe is unknown to this build (nearest known: --spec-type)"
        " (llama_server.py of this role)"
    )
    assert filters["inference_server_flag_problems"](right, there, helps) == []


def test_the_flags_of_an_installed_engine_are_those_of_its_own_help(filters, declare, load_file, help_of):
    options = filters_flags(load_file, help_of("sglang_ddtree"))
    answer = {"build": "sglang 0.5.23", "options": options, "cached": False, "fault": None, "problem": None}

    (problem,) = filters["inference_server_flag_problems"](
        declare({"mem-fraction-statik": 0.8}, SGLANG), node(("sglang", answer)), {}
    )

    assert problem.startswith("configuration tp1: --mem-fraction-statik is unknown to this build (nearest")
    assert problem.endswith("(sglang 0.5.23)")


def filters_flags(load_file, text):
    parse = load_file("filter_plugins/inference_server.py").flags.parse_help
    return [option.to_json() for option in parse(text).values()]


@pytest.mark.parametrize(
    ("engine", "answer"),
    [
        (SGLANG, {**SILENT, "build": "sglang 0.5.23", "problem": "--help could not be read: libcuda"}),
        # Another build will be there, whose flags nobody knows yet.
        (
            {**SGLANG, "requirements": "sglang.txt"},
            {"build": "sglang 0.5.1", "options": [], "cached": False, "fault": None, "problem": None},
        ),
    ],
    ids=["dead GPUs", "to be installed"],
)
def test_what_can_not_be_known_yet_is_not_refused(filters, declare, engine, answer):
    settings, there = declare({"new-flag": 1}, engine), node(("sglang", answer))

    assert filters["inference_server_flag_problems"](settings, there, {}) == []
    assert filters["inference_server_lasting_problems"](settings, there) == []


@pytest.mark.parametrize(
    ("engine", "fault", "lasting"),
    [
        (SGLANG, "missing", True),
        (SGLANG, "package", True),
        (SGLANG, "silent", False),
        (LLAMA, "missing", False),
        (LLAMA, "launcher", False),
        ({**LLAMA, "requirements": None}, "missing", True),
        ({**LLAMA, "requirements": None}, "launcher", False),
        (LLAMA, "hidden", True),
    ],
)
def test_only_what_this_role_does_not_mend_is_refused(filters, declare, engine, fault, lasting):
    answer = {**SILENT, "fault": fault, "problem": "engine x: the reason"}
    there = node((engine["template"], answer))

    problems = filters["inference_server_lasting_problems"](declare({}, engine), there)

    assert problems == (["engine x: the reason"] if lasting else [])


def test_a_model_may_be_missing_but_not_where_its_unit_can_not_see_it(filters, declare):
    well = {**SILENT, "fault": None, "problem": None}
    unseen = {**HOME, "problem": "is below /root, which its hardened unit cannot see", "fault": "hidden"}

    assert filters["inference_server_lasting_problems"](declare({}, LLAMA), node(("llamacpp", well))) == []
    assert filters["inference_server_lasting_problems"](
        declare({}, LLAMA), node(("llamacpp", well), unseen)
    ) == ["configuration tp1: the model m is below /root, which its hardened unit cannot see"]


def test_only_answers_that_the_node_did_not_keep_are_handed_on(filters):
    options = [{"name": "port", "takes_value": True, "choices": []}]
    engines = {
        "asked": {"key": "1", "options": options, "cached": False, "build": "b", "problem": None},
        "kept": {"key": "2", "options": options, "cached": True, "build": "b", "problem": None},
        "silent": {**SILENT, "problem": "x"},
    }

    assert filters["inference_server_answers"](engines) == {"asked": {"key": "1", "options": options}}


@pytest.fixture
def probe(load_file, role, tmp_path, capsys):
    """The module on this machine, with the launcher of the role as an installed engine."""
    launcher = str(role / "files/llama_server.py")
    command = [sys.executable, launcher]
    engine = {
        "name": "llamacpp",
        "command": command,
        "launcher_path": launcher,
        "version_argv": [*command, "--version"],
    }

    def run(*, broken=False, **given):
        asked = {**engine, "command": [sys.executable, "/dev/null"]} if broken else engine
        arguments = {
            "engines": [asked],
            "models": [{"name": "m for llamacpp", "path": "/root/m", "needs": [], "as_file": True}],
            "user": getpass.getuser(),
            "group": "root",
            "cache_dir": str(tmp_path / "cache"),
            "_ansible_remote_tmp": str(tmp_path),
            **given,
        }
        with patch_module_args(arguments), pytest.raises(SystemExit):
            load_file("library/inference_server_probe.py").main()
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


def test_a_look_that_may_not_write_leaves_no_cache_and_its_answer_is_used_later(probe, filters, tmp_path):
    first = probe(keep=False)
    assert (first["engines"]["llamacpp"]["problem"], list(tmp_path.iterdir())) == (None, [])

    known = filters["inference_server_answers"](first["engines"])
    # An answer that says something else shows which one is used.
    known["llamacpp"]["options"] = known["llamacpp"]["options"][:3]
    later = probe(known=known)
    assert len(later["engines"]["llamacpp"]["options"]) == 3
    assert (tmp_path / "cache/llamacpp.json").is_file()
    of_another_build = {"llamacpp": {"key": "x", "options": []}}
    assert probe(known=of_another_build)["engines"]["llamacpp"]["cached"]


def test_an_engine_without_an_answer_is_said_and_is_no_failure(probe):
    result = probe(broken=True, hidden=["/root"])

    assert result["engines"]["llamacpp"]["fault"] == "silent"
    assert result["progress"].endswith("; its flags are not checked yet")
    assert result["models"]["m for llamacpp"]["fault"] == "hidden"
