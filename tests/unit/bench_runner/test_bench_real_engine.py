"""Against llama.cpp's real server with the tiny model: usage, lengths, speculation are the engine's own."""

import asyncio
import re
import signal
import threading
import time

import pytest
import requests
from bench_runner.records import read_requests
from bench_runner.server.lifecycle import Server

from tests.unit.bench_runner.campaign_words import statuses, wait_for
from tests.unit.bench_runner.conftest import SMALL_PLAN

pytest.importorskip("xllamacpp")


def test_a_campaign_on_llama_cpp_agrees_with_the_engines_counters(bench, monkeypatch):
    bench.plan(
        SMALL_PLAN,
        configurations=["tp1-auto", "tp1-ngram-mod"],
        workloads={
            "code": {"points": [96], "requests": 3},
            "context": {"points": [512], "requests": 2},
            "concurrency": {"points": [4], "requests_per_client": 2},
            "agentic": {"points": [4], "output_tokens": 16},
        },
    )
    bench.llama("tp1-auto")
    bench.llama(
        "tp1-ngram-mod",
        "--spec-type=ngram-mod",
        "--spec-ngram-mod-n-match=4",
        "--spec-ngram-mod-n-min=2",
        "--spec-ngram-mod-n-max=8",
    )
    counters: dict[str, dict[str, int]] = {}
    stop = Server.stop

    async def count_and_stop(self):
        text = (await asyncio.to_thread(requests.get, f"{self.deployment.url}/metrics", timeout=5)).text
        found = re.findall(r"^llamacpp:(spec_decode_num_\w+_total) (\d+)", text, re.MULTILINE)
        counters[self.deployment.configuration] = {name: int(value) for name, value in found}
        return await stop(self)

    monkeypatch.setattr(Server, "stop", count_and_stop)
    assert bench.run().message == "8 cells: 8 ok (8 measured now)"
    bench.check_schemas()

    for configuration in ("tp1-auto", "tp1-ngram-mod"):
        code = bench.cell(f"{configuration}.code.96.r1")
        assert code.metrics.completion_tokens == 3 * 96
        assert code.metrics.prompt_tokens == 3 * 48
        assert bench.cell(f"{configuration}.context.512.r1").metrics.prompt_tokens == 2 * 512
        assert bench.cell(f"{configuration}.concurrency.4.r1").metrics.completion_tokens == 8 * 32
        agentic = bench.cell(f"{configuration}.agentic.4.r1")
        assert agentic.metrics.cached_tokens > agentic.metrics.prompt_tokens / 3
        assert code.metrics.cached_tokens < code.metrics.prompt_tokens / 8  # nonces keep the cache out

    auto = bench.cell("tp1-auto.code.96.r1").metrics
    assert (auto.accept_length, auto.verify_steps, auto.draft_tokens) == (None, None, None)
    drafting = [bench.cell(f"tp1-ngram-mod.{rest}.r1").metrics for rest in ("code.96", "context.512")]
    assert all(found.accept_length >= 1 for found in drafting)
    engine = counters["tp1-ngram-mod"]
    ours = [bench.cell(path.name[:-5]).metrics for path in bench.folder.cells.glob("tp1-ngram-mod*.json")]
    # The engine's counters also know the canary and the warm-ups, which aren't counted here.
    assert 0 < sum(found.draft_tokens for found in ours) <= engine["spec_decode_num_draft_tokens_total"]
    assert sum(found.accepted_drafts for found in ours) <= engine["spec_decode_num_accepted_tokens_total"]

    texts = [
        [record.text_sha256 for record in read_requests(bench.folder.requests(f"{configuration}.code.96.r1"))]
        for configuration in ("tp1-auto", "tp1-ngram-mod")
    ]
    assert texts[0] == texts[1]  # greedy answers to the same prompts: speculation must not change them


def test_each_steps_token_and_the_accepted_drafts_make_up_the_answer(bench):
    bench.plan(SMALL_PLAN, configurations=["tp1-ngram-mod"], baseline="tp1-ngram-mod")
    bench.llama("tp1-ngram-mod", "--spec-type=ngram-mod")
    bench.run()
    for record in read_requests(bench.folder.requests("tp1-ngram-mod.code.16.r1")):
        assert record.completion_tokens == 1 + record.verify_steps + record.accepted_drafts


def test_an_engine_killed_while_it_generates_is_a_crash_with_evidence(bench):
    bench.plan(
        SMALL_PLAN,
        workloads={"code": {"points": [16, 1900], "requests": 8}, "context": {"points": [256]}},
        limits={"server_ready_s": 60, "cell_s": 60, "stall_s": 20},
    )
    bench.llama("tp1-auto")
    unit = bench.start_control().units["tp1-auto"]

    def kill_in_the_middle():
        """As soon as the long cell is being measured: its requests take seconds."""
        wait_for(lambda: bench.folder.status.exists() and measuring(bench.status()), 90)
        time.sleep(0.3)
        unit.process.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    outcome = bench.run()
    killer.join()
    bench.check_schemas()
    assert outcome.state == "finished"
    assert statuses(bench) == {
        "tp1-auto.code.16.r1": "ok",
        "tp1-auto.code.1900.r1": "crashed",
        "tp1-auto.context.256.r1": "skipped",
    }
    cell = bench.cell("tp1-auto.code.1900.r1")
    assert cell.reasons[0].code == "server_crashed"
    assert "killed_by_someone: it was killed from outside with signal 9" in cell.reasons[0].detail
    evidence = cell.evidence
    assert (evidence["state"], evidence["signature"]) == ("dead", "killed_by_someone")
    assert (evidence["Result"], evidence["ExecMainStatus"], evidence["NRestarts"]) == ("signal", 9, 0)
    assert evidence["InvocationID"] == evidence["measured"]["invocation_id"] != ""
    assert any("load" in line for line in evidence["journal"])
    assert cell.metrics is None
    assert cell.requests.planned == 8 == cell.requests.ok + cell.requests.failed


def measuring(status):
    current = status["current"] or {}
    return current.get("cell") == "tp1-auto.code.1900.r1" and current.get("phase") == "measuring"
