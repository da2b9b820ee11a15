"""A secret reaches the engine, and nobody else sees it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible.module_utils.inference_server.credentials import describe_credential
from ansible.module_utils.inference_server.declared import check_configuration
from ansible.module_utils.inference_server.engines import engine_from

WRAPPER = Path(__file__).resolve().parents[3] / "roles/inference_server/files/with_credentials.py"
SECRET = "sk-0123456789-abcdef"
SGLANG = {"template": "sglang", "venv": "/opt/sglang"}

# As SGLang does: logs its arguments, and has processes of its own that were spawned and log as well.
ENGINE = """
import json, logging, multiprocessing, os, sys, time

logging.basicConfig(level=logging.INFO)

def work(key):
    logging.info("child has key=%s argv=%s", key, sys.argv)
    print("child prints", key, flush=True)
    print("child warns", key, file=sys.stderr, flush=True)
    time.sleep(30)

if __name__ == "__main__":
    sys.path.insert(0, os.environ["ENGINE_PATH"])
    import spawned
    key = next(word.split("=", 1)[1] for word in sys.argv if word.startswith("--api-key="))
    token = open(os.environ["HF_TOKEN_PATH"]).read().strip()
    with open(os.environ["SEEN"], "w") as seen:
        json.dump({"argv": sys.argv, "token": token}, seen)
    logging.info("server_args=%r", {"api_key": key, "argv": sys.argv})
    child = multiprocessing.get_context("spawn").Process(target=spawned.work, args=(key,))
    child.start()
    child.join()
"""


@pytest.fixture
def credentials(tmp_path):
    """As systemd loads them for a unit."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    for name in ("api_key", "hub_token"):
        (folder / name).write_text(f"{SECRET}-{name}\n")
    return folder


@pytest.fixture
def engine(tmp_path, credentials):
    """The stand-in engine behind the wrapper, until its child has spoken; its log."""
    for name in ("pretended", "spawned"):
        (tmp_path / f"{name}.py").write_text(ENGINE)
    words = ["--flag=api-key=api_key", "--variable=HF_TOKEN_PATH=hub_token"]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path),
        "ENGINE_PATH": str(tmp_path),
        "SEEN": str(tmp_path / "seen.json"),
        "CREDENTIALS_DIRECTORY": str(credentials),
    }
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, str(WRAPPER), *words, "-m", "pretended", "--port", "1", "-m", "x"],
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    until = time.monotonic() + 20
    while "child warns" not in log.read_text() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    yield process, log
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def processes_of(group: int) -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(path.name)) == group:
                found.append(path)
        except ProcessLookupError:  # noqa: PERF203 - it ended between the look and the question
            continue
    return found


def test_the_engine_has_its_secrets_and_nothing_shows_them(engine, tmp_path):
    process, log = engine
    said = log.read_text()

    assert json.loads((tmp_path / "seen.json").read_text()) == {
        "argv": ["pretended", "--port", "1", "-m", "x", f"--api-key={SECRET}-api_key"],
        "token": f"{SECRET}-hub_token",
    }, said
    for text in ("server_args=", "child has key=", "child prints", "child warns"):
        assert text in said
    assert SECRET not in said
    assert said.count("[credential]") >= 5
    shown = processes_of(process.pid)
    assert len(shown) >= 2
    for path in shown:
        assert SECRET.encode() not in (path / "cmdline").read_bytes()
        assert SECRET.encode() not in (path / "environ").read_bytes()


@pytest.mark.parametrize(
    ("environment", "words", "message"),
    [
        ({}, ["--flag=api-key=api_key", "-m", "json.tool"], "no $CREDENTIALS_DIRECTORY: a unit with"),
        (
            {"CREDENTIALS_DIRECTORY": "/nonexistent"},
            ["--variable=X=hub_token", "-m", "json.tool"],
            "the credential hub_token cannot be read",
        ),
        ({}, ["--flag=api-key=api_key"], "-m MODULE is missing"),
    ],
)
def test_without_a_secret_the_engine_is_not_started(environment, words, message):
    done = subprocess.run(
        [sys.executable, str(WRAPPER), *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    assert done.returncode != 0
    assert message in done.stderr


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


def test_a_file_that_only_root_reads_is_right(secret_file):
    assert describe_credential(secret_file) is None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "is not at {path}: put it there, owned by root, mode 0600"),
        (lambda path: path.chmod(0o644), "can be read by everybody (mode 0644): chmod 0600 {path}"),
        (lambda path: path.write_text("\n"), "at {path} is not one word of at least 8 characters"),
        (lambda path: path.write_text(f"{SECRET}\n{SECRET}\n"), "is not one word"),
        (lambda path: path.write_text(f"'{SECRET}'"), "is not one word"),
        (lambda path: (path.unlink(), path.mkdir()), "at {path} is no file"),
    ],
    ids=["missing", "readable", "empty", "two words", "quoted", "folder"],
)
def test_a_file_that_cannot_be_used_is_named_without_its_content(secret_file, spoil, message):
    spoil(secret_file)

    problem = describe_credential(secret_file)

    assert message.format(path=secret_file) in problem
    assert SECRET not in problem


def test_the_unit_loads_the_file_and_the_command_names_only_the_credential(templates):
    declared = {**SGLANG, "credentials": {"api_key": "/etc/keys/api", "hub_token": "/etc/keys/hub"}}

    engine = engine_from("sglang", declared, templates, "/lib")

    assert engine.served_command == (
        *("/opt/sglang/bin/python", "/lib/with_credentials.py", "--flag=api-key=api_key"),
        *("--variable=HF_TOKEN_PATH=hub_token", "-m", "sglang.launch_server"),
    )
    # The build is asked for its flags without any secret.
    assert engine.command == ("/opt/sglang/bin/python", "-m", "sglang.launch_server")


def test_an_engine_that_looks_for_the_file_itself_is_started_as_it_is(templates):
    declared = {"template": "llamacpp", "venv": "/opt/llama", "credentials": {"api_key": "/etc/keys/api"}}

    engine = engine_from("llamacpp", declared, templates, "/lib")

    assert engine.served_command == engine.command


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"credentials": {"api_kee": "/x"}},
            "credentials: unknown api_kee; nearest: api_key; known: api_key",
        ),
        ({"credentials": {"api_key": "sk-1"}}, "api_key must be the absolute path of a file on the node"),
        (
            {"credentials": {"api_key": "/k"}, "command": ["/opt/run", "serve"]},
            "can be handed over to a Python module only",
        ),
        ({"environment": {"HF_TOKEN": SECRET}}, "environment HF_TOKEN: a secret would be shown to everybody"),
    ],
)
def test_a_secret_that_would_be_seen_is_refused(templates, change, message):
    with pytest.raises(ValueError, match="engine sglang: ") as caught:
        engine_from("sglang", {**SGLANG, **change}, templates, "/lib")

    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flags": {"api-key": SECRET}}, "flag api-key: a secret would be shown to everybody; put it into a"),
        ({"extra_arguments": [f"--admin-api-key={SECRET}"]}, "flag admin-api-key: a secret would be shown"),
        ({"environment": {"OPENAI_API_KEY": SECRET}}, "environment OPENAI_API_KEY: a secret would be shown"),
    ],
)
def test_a_configuration_that_would_show_a_secret_is_refused(templates, change, message):
    engines = {"sglang": engine_from("sglang", SGLANG, templates, "/lib")}
    declared = {"engine": "sglang", "model": "m", "tensor_parallelism": 1, "context_tokens": 512, **change}

    (problem,) = check_configuration("x", declared, engines, ["m"])

    assert message in problem
    assert SECRET not in problem
