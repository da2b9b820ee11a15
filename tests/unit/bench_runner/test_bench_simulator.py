"""The simulator against the recorded SGLang: the same keys, the same order of events, the same log lines."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench_runner.server.log_lines import batches, last_lines

from tests.sim.scenarios import SCENARIOS
from tests.sim.sglang_faults import DEADLY, FAULTS
from tests.sim.sglang_shaped import Behaviour, Fault
from tests.sim.shapes import BODIES, RECORDED, REQUESTS, ask, recorded, shape, shapes
from tests.unit.bench_runner.conftest import ROOT, SIMULATOR, free_port

LOG = ROOT / "tests/data/sglang-logs/server-0.5.23-cpu-ngram.log"


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
