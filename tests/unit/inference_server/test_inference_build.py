"""What a node says of an engine and a model: asked of real programs and folders."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.inference_server.build import PACKAGE_SCRIPT, Account, describe_engine, run_as
from ansible.module_utils.inference_server.models import describe_model, pick_file

LAUNCHER = Path(__file__).resolve().parents[3] / "roles/inference_server/files/llama_server.py"
US = Account("us", None, None)


@pytest.fixture
def engine():
    command = [sys.executable, str(LAUNCHER)]
    return {
        "name": "llamacpp",
        "command": command,
        "launcher_path": str(LAUNCHER),
        "version_argv": [*command, "--version"],
        "package": None,
    }


def test_an_installed_engine_tells_its_build_and_its_options(engine, tmp_path):
    found = describe_engine(engine, US, tmp_path / "llamacpp.json")

    assert found["problem"] is None
    assert found["build"].startswith("llama.cpp xllamacpp ")
    assert "spec-type" in {option["name"] for option in found["options"]}


def test_the_options_of_a_build_are_asked_for_once(engine, tmp_path):
    cache = tmp_path / "engines/llamacpp.json"

    first = describe_engine(engine, US, cache)
    second = describe_engine(engine, US, cache)

    assert (first["cached"], second["cached"]) == (False, True)
    assert second["options"] == first["options"]


def test_another_build_is_asked_anew(engine, tmp_path):
    cache = tmp_path / "llamacpp.json"
    describe_engine(engine, US, cache)
    changed = tmp_path / "launcher.py"
    changed.write_text(LAUNCHER.read_text().replace("LAUNCHER_VERSION = 1", "LAUNCHER_VERSION = 2"))
    command = [sys.executable, str(changed)]

    found = describe_engine(
        engine | {"command": command, "launcher_path": str(changed), "version_argv": [*command, "--version"]},
        US,
        cache,
    )

    assert not found["cached"]
    assert found["build"].endswith("launcher 2")


def test_a_rehearsal_leaves_no_cache(engine, tmp_path):
    describe_engine(engine, US, tmp_path / "llamacpp.json", keep=False)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_torn_cache_is_asked_anew(engine, tmp_path, content):
    cache = tmp_path / "llamacpp.json"
    cache.write_text(content)

    assert describe_engine(engine, US, cache)["problem"] is None
    assert json.loads(cache.read_text())["options"]


def test_an_engine_that_is_not_there_says_what_is_missing(engine, tmp_path):
    cache = tmp_path / "x.json"

    without_python = engine | {"command": ["/opt/x/bin/python", "-m", "x"]}
    assert describe_engine(without_python, US, cache)["fault"] == "missing"
    assert describe_engine(without_python, US, cache)["problem"] == (
        "engine llamacpp is not installed: there is no /opt/x/bin/python;"
        " install it, or say where it is (venv)"
    )
    assert describe_engine(engine | {"launcher_path": "/opt/x.py"}, US, cache)["problem"] == (
        "engine llamacpp is not installed: there is no /opt/x.py; install it, or say where it is (venv)"
    )
    assert describe_engine(engine | {"launcher_path": "/opt/x.py"}, US, cache)["fault"] == "launcher"


def test_a_python_without_the_package_is_named(engine, tmp_path):
    found = describe_engine(
        engine | {"version_argv": [], "launcher_path": None, "package": "sglang"}, US, tmp_path / "x.json"
    )

    assert found["fault"] == "package"
    assert found["problem"] == (
        "engine llamacpp: its version could not be read as the user us:"
        f" the package sglang is not installed for {sys.executable}"
    )


def test_an_engine_whose_help_fails_is_named_with_its_last_words(engine, tmp_path):
    script = tmp_path / "engine"
    script.write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo 1.0 && exit\necho ImportError: libcuda >&2\nexit 1\n"
    )
    script.chmod(0o755)

    found = describe_engine(
        engine
        | {"command": [str(script)], "launcher_path": None, "version_argv": [str(script), "--version"]},
        US,
        tmp_path / "x.json",
    )

    assert (found["build"], found["fault"]) == ("1.0", "silent")
    assert (
        found["problem"] == "engine llamacpp: --help could not be read as the user us: ImportError: libcuda"
    )
    assert not (tmp_path / "x.json").exists()


def test_an_engine_that_hangs_is_given_up(tmp_path):
    assert run_as(US, ["sleep", "5"], 0.1).last_line == "it did not end within 0 s"


def test_an_engine_is_asked_in_its_own_environment(tmp_path):
    script = tmp_path / "engine"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "1.0 $KIND" && exit\necho "  --on-$KIND N  x"\n'
    )
    script.chmod(0o755)
    engine = {"name": "e", "command": [str(script)], "version_argv": [str(script), "--version"]}

    found = describe_engine(engine | {"environment": {"KIND": "cpu"}}, US, tmp_path / "x.json")

    assert found["build"] == "1.0 cpu"
    assert [option["name"] for option in found["options"]] == ["on-cpu"]


def test_an_engine_runs_in_an_empty_home(tmp_path):
    ran = run_as(US, ["sh", "-c", 'echo "$HOME"; ls -A "$HOME"'], 5)

    home, *files = ran.out.splitlines()
    assert home != os.environ["HOME"]
    assert files == []
    assert not Path(home).exists()


def package(site: Path, name: str, origin: dict) -> dict[str, str]:
    """An installed distribution, as pip leaves it; returns the environment to find it with."""
    info = site / f"{name}-0.5.23.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.5.23\n")
    (info / "direct_url.json").write_text(json.dumps(origin))
    return {**os.environ, "PYTHONPATH": str(site)}


def build_of(name: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PACKAGE_SCRIPT, name],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout.strip()


def test_a_release_is_named_by_its_version(tmp_path):
    assert build_of("forked", package(tmp_path, "forked", {})) == "forked 0.5.23"


def test_a_package_from_git_is_named_with_its_commit(tmp_path):
    environment = package(tmp_path, "forked", {"vcs_info": {"commit_id": "0123456789abcdef"}})

    assert build_of("forked", environment) == "forked 0.5.23 git 0123456789ab"


@pytest.mark.parametrize("packed", [False, True], ids=["loose reference", "packed reference"])
def test_an_editable_checkout_is_named_with_the_commit_it_stands_at(tmp_path, packed):
    checkout = tmp_path / "fork"
    git = ["git", "-C", str(checkout), "-c", "user.name=t", "-c", "user.email=t@t"]
    (checkout / "python").mkdir(parents=True)
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    if packed:
        subprocess.run([*git, "pack-refs", "--all"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout[
        :12
    ]
    origin = {"url": f"file://{checkout}/python", "dir_info": {"editable": True}}

    assert build_of("forked", package(tmp_path / "site", "forked", origin)) == f"forked 0.5.23 git {commit}"


@pytest.mark.parametrize(
    ("names", "picked"),
    [
        (["a.gguf", "README.md"], "a.gguf"),
        (["m-00002-of-00002.gguf", "m-00001-of-00002.gguf"], "m-00001-of-00002.gguf"),
        (["a.gguf", "b.gguf"], None),
        (["a.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"], None),
        (["model.safetensors"], None),
    ],
)
def test_the_file_to_name_is_the_only_one_or_the_first_part(names, picked):
    assert pick_file(names) == picked


def model(path: Path, *, needs: tuple[str, ...] = ("*.gguf",), as_file: bool = True) -> dict:
    return {"name": "m", "path": str(path), "needs": list(needs), "as_file": as_file}


def test_a_whole_model_has_no_problem(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")

    assert describe_model(model(tmp_path), US) == {"path": str(tmp_path), "file": "a.gguf", "problem": None}


def test_a_folder_for_an_engine_that_wants_folders_names_no_file(tmp_path):
    for name in ("config.json", "a.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text("x")
    needs = ("config.json", "*.safetensors", "tokenizer*")

    assert describe_model(model(tmp_path, needs=needs, as_file=False), US)["file"] is None
    assert describe_model(model(tmp_path, needs=needs, as_file=False), US)["problem"] is None


def test_a_model_that_is_not_there_names_the_stage_to_run(tmp_path):
    path = tmp_path / "m"

    assert (
        describe_model(model(path), US)["problem"]
        == f"is not at {path}: stage it first (playbooks/stage.yml)"
    )


def test_a_model_that_lacks_files_names_them(tmp_path):
    (tmp_path / "a.gguf.part").write_text("x")

    assert describe_model(model(tmp_path), US)["problem"] == (
        f"at {tmp_path} has no *.gguf (found: a.gguf.part): stage it again (playbooks/stage.yml)"
    )


@pytest.mark.parametrize(
    ("files", "file", "problem"),
    [
        (["README.md", "a.gguf"], "a.gguf", None),
        (["b-00001-of-00002.gguf", "b-00002-of-00002.gguf"], "b-00001-of-00002.gguf", None),
        (["sub/a.gguf", "config.json"], None, "has no *.gguf (found: config.json): stage it again"),
        (["a.gguf", "b.gguf"], None, "has several GGUF files"),
    ],
)
def test_a_model_whose_turn_comes_later_is_judged_by_the_names_of_its_files(tmp_path, files, file, problem):
    found = describe_model({**model(tmp_path / "m"), "files": files}, US)

    assert (found["path"], found["file"]) == (str(tmp_path / "m"), file)
    if problem is None:
        assert found["problem"] is None
    else:
        assert found["problem"].startswith(f"that waits for its turn in {tmp_path} {problem}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as somebody else")
def test_a_model_that_the_engines_user_may_not_read_is_named(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    (tmp_path / "a.gguf").chmod(stat.S_IRUSR)

    problem = describe_model(model(tmp_path), Account("inference", 65534, 65534))["problem"]

    assert problem.startswith(f"at {tmp_path} cannot be read by the user inference: ")
    assert "Permission" in problem
