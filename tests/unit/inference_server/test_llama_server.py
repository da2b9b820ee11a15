"""The lab's engine: its flags, and the real server with the tiny model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "roles/inference_server/files/llama_server.py"
MODEL = Path(__file__).resolve().parents[2] / "data/models/tiny-qwen2.gguf"


@pytest.fixture(scope="module")
def llama(load_file):
    return load_file("files/llama_server.py")


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "COLUMNS": "110"},
    )


def test_the_recorded_help_is_the_programs(help_of):
    assert run("--help").stdout == help_of("llama_server")


def test_the_version_names_package_and_launcher(llama):
    assert run("--version").stdout == llama.build_name() + "\n"
    assert llama.build_name().startswith("llama.cpp xllamacpp 20")


def test_the_engine_of_the_tests_is_the_one_that_is_deployed(llama):
    pinned = (PROGRAM.parent / "llamacpp-requirements.txt").read_text().splitlines()[-1]

    assert f"xllamacpp {pinned.removeprefix('xllamacpp==')} " in llama.build_name()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "/nope.gguf"], "--model: /nope.gguf is not a file"),
        (["--spec-type", "draft-simple"], "--spec-type draft-simple and --model-draft belong together"),
        (["--model-draft", str(MODEL)], "--spec-type draft-simple and --model-draft belong together"),
        (
            ["--draft-max", "3"],
            "--spec-draft-n-max belongs to --spec-type draft-simple and has no effect with none",
        ),
        (
            ["--spec-type", "ngram-map-k", "--spec-ngram-map-k4v-size-n", "3"],
            "--spec-ngram-map-k4v-size-n belongs to --spec-type ngram-map-k4v",
        ),
    ],
)
def test_what_would_be_ignored_or_fail_later_is_refused(arguments, message):
    given = arguments if "--model" in arguments else ["--model", str(MODEL), *arguments]

    done = run(*given)

    assert done.returncode == 2
    assert f"llama_server: error: {message}" in done.stderr


def test_an_unknown_flag_is_an_error():
    done = run("--model", str(MODEL), "--thread", "1")

    assert done.returncode == 2
    assert "unrecognized arguments: --thread" in done.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, log: Path, *arguments: str) -> None:
        self.port = free_port()
        self.log = log
        command = [
            sys.executable,
            str(PROGRAM),
            "--model",
            str(MODEL),
            "--port",
            str(self.port),
            "--alias",
            "tiny",
        ]
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [*command, "--threads", "1", "--ctx-size", "2048", "--metrics", *arguments],
                stderr=out,
                stdout=out,
            )
        deadline = time.monotonic() + 60
        while f"listening on http://127.0.0.1:{self.port}" not in log.read_text():
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    def get(self, path: str, body: dict | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
            return answer.read().decode()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=10)


@pytest.fixture
def serve(tmp_path):
    started = []

    def start(*arguments: str) -> Server:
        started.append(Server(tmp_path / f"{len(started)}.log", *arguments))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.wait()


COMPLETION = {
    "prompt": "import os\nimport sys\nimport os\nimport sys\nimport os",
    "max_tokens": 96,
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}


@pytest.mark.parametrize(
    ("arguments", "drafts"),
    [
        ([], False),
        (
            [
                "--spec-type",
                "ngram-simple",
                "--spec-ngram-simple-size-n",
                "2",
                "--spec-ngram-simple-size-m",
                "8",
            ],
            True,
        ),
        (
            [
                *("--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "4"),
                *("--spec-ngram-mod-n-min", "2", "--spec-ngram-mod-n-max", "8"),
            ],
            True,
        ),
        (["--spec-type", "draft-simple", "--model-draft", str(MODEL), "--spec-draft-n-max", "4"], True),
    ],
    ids=["none", "ngram-simple", "ngram-mod", "draft-simple"],
)
def test_each_configuration_of_the_lab_serves_and_ends_cleanly(serve, arguments, drafts):
    server = serve(*arguments)

    events = [
        line[6:]
        for line in server.get("/v1/completions", COMPLETION).splitlines()
        if line.startswith("data: ")
    ]
    last = json.loads(events[-2])

    assert events[-1] == "[DONE]"
    assert last["usage"]["completion_tokens"] == 96
    assert last["timings"]["predicted_n"] == 96
    assert ("draft_n" in last["timings"]) == drafts
    assert json.loads(server.get("/v1/models"))["data"][0]["id"] == "tiny"
    assert json.loads(server.get("/tokenize", {"content": "import os"}))["tokens"]
    assert "llamacpp:spec_decode_num_drafts_total" in server.get("/metrics")
    assert server.end() == 0
    assert "llama_server: stopped by a signal" in server.log.read_text()


def test_a_port_in_use_ends_the_start_with_an_error(serve):
    server = serve()

    done = run("--model", str(MODEL), "--port", str(server.port), "--threads", "1")

    assert done.returncode == 1
    assert f"did not start with {MODEL} on 127.0.0.1:{server.port}" in done.stderr
