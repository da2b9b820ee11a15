"""The real SGLang, through the role's template and the runner: served, measured, and killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from bench_runner.records import read_requests
from bench_runner.server.lifecycle import Server

from tests.sglang.conftest import PLAN, SECRETS

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1200)]


def processes() -> dict[int, bytes]:
    """Each process's command line and environment."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            found[int(path.name)] = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:  # noqa: PERF203 - it ended between the look and the reading
            continue
    return found


def holding(folder: Path, secret: str) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    }


def test_the_role_deploys_what_the_build_knows(deployed):
    assert deployed.answer["build"].startswith("sglang 0.5.23")
    assert "--speculative-algorithm" in deployed.unit("tp1-ngram").command
    assert deployed.description("tp1-standalone")["flags"]["speculative-draft-model-path"] == (
        "tiny-qwen2@sha256:tiny"
    )


def test_a_campaign_on_the_baseline_and_two_speculations_is_ok(sglang, deployed, monkeypatch):
    seen: list[dict[int, bytes]] = []
    stop = Server.stop

    async def look_and_stop(self):
        seen.append(processes())
        return await stop(self)

    monkeypatch.setattr(Server, "stop", look_and_stop)
    sglang.run()
    logs = {
        name: (sglang.root / f"{name}.log").read_text(errors="replace") for name in PLAN["configurations"]
    }

    cells = {name: sglang.cell(f"{name}.code.64.r1") for name in PLAN["configurations"]}
    assert {name: (cell.status, cell.reasons) for name, cell in cells.items()} == dict.fromkeys(
        cells, ("ok", [])
    )
    for name, cell in cells.items():
        assert cell.metrics.completion_tokens == 2 * 64, name
        assert cell.metrics.prompt_tokens == 2 * 48, name
    # Accept length: tokens a verify step; the model as its own draft is always right, up to its 4 tokens.
    assert cells["tp1-auto"].metrics.accept_length is None
    assert cells["tp1-ngram"].metrics.accept_length >= 1
    assert cells["tp1-standalone"].metrics.accept_length > 3
    texts = {
        name: [record.text_sha256 for record in read_requests(sglang.folder.requests(f"{name}.code.64.r1"))]
        for name in cells
    }
    assert texts["tp1-ngram"] == texts["tp1-auto"] == texts["tp1-standalone"]

    # Nobody but SGLang itself has the secrets, though it logs all its arguments.
    assert len(seen) == 3
    assert all("server_args=" in log for log in logs.values())
    for secret in SECRETS.values():
        assert all(secret.encode() not in shown for each in seen for shown in each.values())
        assert secret not in deployed.said
        assert all(secret not in log for log in logs.values())
        assert holding(deployed.scratch, secret) == {name for name, each in SECRETS.items() if each == secret}
        kept = holding(sglang.root, secret)
        assert {path for path in kept if "credentials" not in path} == set()


def test_killed_while_it_generates_it_has_crashed_with_evidence(sglang):
    sglang.plan(
        PLAN,
        configurations=["tp1-ngram"],
        baseline="tp1-ngram",
        attempts=1,
        workloads={"code": {"points": [1500], "requests": 2, "prompt_tokens": 48}},
    )

    def kill_when_it_decodes():
        log = sglang.root / "tp1-ngram.log"
        until = time.monotonic() + 600
        while time.monotonic() < until:
            text = log.read_text(errors="replace") if log.exists() else ""
            # The canary and the warm-up are too short for a line of decoding at 40 steps.
            if "Decode batch" in text:
                schedulers = [
                    pid for pid, shown in processes().items() if shown.startswith(b"sglang::scheduler")
                ]
                os.kill(schedulers[0], signal.SIGKILL)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill_when_it_decodes, daemon=True)
    killer.start()
    sglang.run()
    killer.join(10)

    cell = sglang.cell("tp1-ngram.code.1500.r1")
    assert cell.status == "crashed"
    assert cell.metrics is None
    assert cell.evidence["signature"]
    said = "\n".join(cell.evidence["journal"])
    assert "Decode batch" in said
    assert cell.reasons[0].code == "server_crashed"
