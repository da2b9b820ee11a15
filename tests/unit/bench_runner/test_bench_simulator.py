"""The simulator against the recorded SGLang: the same keys, the same order of events, the same log lines."""

import http.client
import json
import re
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path

import pytest
from bench_runner.server.log_lines import batches, last_lines

from tests.sim.scenarios import SCENARIOS
from tests.sim.sglang_faults import DEADLY, FAULTS
from tests.sim.sglang_shaped import Behaviour, Fault
from tests.unit.bench_runner.conftest import ROOT, SIMULATOR, free_port

RECORDED = ROOT / "tests/data/sglang-http"
LOG = ROOT / "tests/data/sglang-logs/server-0.5.23-cpu-ngram.log"
SPEC = {"stream": True, "return_spec_tokens_details": True}
USAGE = {"stream_options": {"include_usage": True}}
EACH = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
LONG = "x " * 3000
MESSAGES = [{"role": "user", "content": "a b c"}]

# What was asked when each reply was recorded.
REQUESTS = {
    "abort_all": ("/abort_request", {"abort_all": True}),
    "bad_json": ("/v1/completions", b'{"model":'),
    "chat_stream_spec": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 48, **SPEC, **USAGE}),
    "completions_stream_spec": ("/v1/completions", {"prompt": "a b", "max_tokens": 48, **SPEC, **EACH}),
    "crash_mid_stream": ("/v1/completions", {"prompt": "a b", "max_tokens": 400, **SPEC, **USAGE}),
    "flush_cache": ("/flush_cache", {}),
    "generate_nonstream": ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 32}}),
    "generate_stream": (
        "/generate",
        {"text": "a", "sampling_params": {"max_new_tokens": 24}, "stream": True},
    ),
    "overflow_by_output": ("/v1/completions", {"prompt": "a", "max_tokens": 4000}),
    "overflow_chat_stream": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": LONG}], "max_tokens": 8, "stream": True},
    ),
    "overflow_completions": ("/v1/completions", {"prompt": LONG, "max_tokens": 8}),
    "overflow_generate": ("/generate", {"text": LONG, "sampling_params": {"max_new_tokens": 8}}),
    "overflow_generate_stream": (
        "/generate",
        {"text": LONG, "sampling_params": {"max_new_tokens": 8}, "stream": True},
    ),
    "tokenize": ("/tokenize", {"prompt": "def f(x): return"}),
    "v1_tokenize": ("/v1/tokenize", {"prompt": "def f(x): return"}),
    "wrong_model": ("/v1/completions", {"model": "nope", "prompt": "a", "max_tokens": 4}),
}
BODIES = {
    name: f"/{name.replace('v1_', 'v1/')}" for name in ("model_info", "server_info", "v1_loads", "v1_models")
}


def shape(value):
    """Keys all the way down; of a list its first item stands for all."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value and isinstance(value[0], dict) else []
    return None


def shapes(status, headers, body):
    """A reply without its values: status, names of headers, of a stream its events with repeats folded."""
    names = sorted(name.lower() for name in headers)
    if b"data: " not in body:
        return status, names, shape(json.loads(body)) if body.startswith(b"{") else body.rstrip(b"\n")
    events = re.findall(rb"data: (.*)\n\n", body)
    parsed = ["[DONE]" if event == b"[DONE]" else json.dumps(shape(json.loads(event))) for event in events]
    return status, names, [event for event, _ in groupby(parsed)]


def recorded(name):
    head, _, body = (RECORDED / f"{name}.http").read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
    first, *lines = head.decode().splitlines()
    headers = [line.partition(":")[0] for line in lines]
    return shapes(int(first.split()[1]), headers, body)


def ask(port, path, asked):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        raw = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        connection.request("POST", path, raw) if asked is not None else connection.request("GET", path)
        reply = connection.getresponse()
        try:
            body = reply.read()
        except http.client.IncompleteRead as exc:
            body = exc.partial
        return reply.status, [name for name, _ in reply.getheaders()], body
    finally:
        connection.close()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_reply_has_the_recorded_ones_shape(simulator, name):
    torn = [Fault("truncated", min_output=400, at_token=90)]
    port = simulator(Behaviour(speculating=True, tokens_per_chunk=2, faults=torn))
    path, asked = REQUESTS[name]
    status, headers, body = ask(port, path, {"model": "sim", **asked} if isinstance(asked, dict) else asked)
    assert shapes(status, headers, body) == recorded(name)


def test_every_recorded_reply_is_compared():
    assert {path.stem for path in RECORDED.glob("*.http")} == set(REQUESTS)
    assert {path.stem for path in RECORDED.glob("*.body")} == {*BODIES, "metrics"}


@pytest.mark.parametrize("name", BODIES)
def test_what_the_server_says_of_itself_has_the_recorded_keys(simulator, name):
    status, _, body = ask(simulator(Behaviour()), BODIES[name], None)
    assert (status, shape(json.loads(body))) == (
        200,
        shape(json.loads((RECORDED / f"{name}.body").read_bytes())),
    )


def test_metrics_have_the_recorded_names_and_counters_that_move(simulator):
    port = simulator(Behaviour())

    def names(text):
        return set(re.findall(rb"(?m)^(sglang:\w+)", text))

    def decoded():
        text = ask(port, "/metrics", None)[2]
        return re.findall(rb'(?m)^sglang:realtime_tokens_total\{.*mode="decode".*\} (.*)$', text)

    assert names(ask(port, "/metrics", None)[2]) == names((RECORDED / "metrics.body").read_bytes())
    assert decoded() == []
    ask(port, "/v1/completions", {"prompt": "a", "max_tokens": 7, "stream": True})
    assert decoded() == [b"7.0"]


def test_health_is_empty_with_200_and_503_while_it_warms_up(simulator):
    assert ask(simulator(Behaviour()), "/health", None)[::2] == (200, b"")
    assert ask(simulator(Behaviour(warm_s=60)), "/health", None)[0] == 503


def test_its_log_lines_are_read_with_the_keys_of_the_recorded_ones(tmp_path):
    log, port = tmp_path / "sim.log", free_port()
    command = [sys.executable, str(SIMULATOR), f"--port={port}", "--behaviour", '{"speculating": true}']
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file)
        try:
            until = time.monotonic() + 15
            while b"ready to roll" not in log.read_bytes():
                assert time.monotonic() < until
                time.sleep(0.02)
            ask(port, "/v1/completions", {"prompt": "a", "max_tokens": 100, "stream": True})
        finally:
            process.kill()
            process.wait()
    ours, theirs = batches(last_lines(log, 100)), batches(last_lines(LOG, 1000))
    for kind in ("prefill", "decode"):
        keys = [{*batch.values} for batch in theirs if batch.kind == kind]
        mine = [{*batch.values} for batch in ours if batch.kind == kind]
        assert mine
        graphs = {"cuda_graph", "cpu_graph"}  # the recorded one ran on a CPU
        assert {frozenset(each - graphs) for each in mine} == {frozenset(each - graphs) for each in keys}


def test_each_fault_is_in_a_scenario():
    used = {fault["name"] for row in SCENARIOS.values() for fault in row.behaviour.get("faults", [])}
    assert used | {"overflow_event"} == set(FAULTS)
    assert set(DEADLY) <= used


def test_the_recordings_are_small_enough_to_keep():
    assert sum(path.stat().st_size for path in Path(RECORDED).iterdir()) < 200_000
