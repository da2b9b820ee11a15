"""The real SGLang, through the role's template and the runner: served, measured, and killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from bench_runner.records import read_requests

from tests.sglang.conftest import PLAN, SECRETS, processes
from tests.sim.shapes import BODIES, RECORDED, REQUESTS, recorded, shape, shapes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1200)]


def test_the_role_deploys_what_the_build_knows(deployed):
    flags = deployed.description("tp1-standalone")["flags"]

    assert deployed.answer["build"] == "sglang 0.5.23"
    assert flags["speculative-draft-model-path"] == "tiny-qwen2@sha256:tiny"
    assert flags["extra_arguments"] == ["--speculative-draft-attention-backend=intel_amx"]


@pytest.mark.parametrize("name", PLAN["configurations"])
def test_a_measured_cell_is_ok(measured, name):
    cell = measured.bench.cell(f"{name}.code.64.r1")

    assert (cell.status, cell.reasons) == ("ok", []), measured.log(name)[-3000:]
    assert cell.metrics.completion_tokens == 2 * 64
    assert cell.metrics.prompt_tokens == 2 * 48


def test_the_accept_length_is_taken(measured):
    accepted = {
        name: measured.bench.cell(f"{name}.code.64.r1").metrics.accept_length
        for name in PLAN["configurations"]
    }

    assert accepted["tp1-auto"] is None
    # Tokens a verify step, the one that the target adds included; a chain of 3 drafts gives at most 4.
    assert 1 <= accepted["tp1-ngram"] <= 8
    assert 1.5 < accepted["tp1-standalone"] <= 4


def test_speculation_changes_no_text(measured):
    texts = {
        name: [
            record.text_sha256
            for record in read_requests(measured.bench.folder.requests(f"{name}.code.64.r1"))
        ]
        for name in PLAN["configurations"]
    }

    assert texts["tp1-ngram"] == texts["tp1-standalone"] == texts["tp1-auto"]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_nobody_but_sglang_has_its_secrets(measured, deployed, secret):
    assert set(measured.processes) == set(PLAN["configurations"])
    for name, shown in measured.processes.items():
        assert any(b"sglang::scheduler" in each for each in shown.values())
        assert all(secret.encode() not in each for each in shown.values())
        assert "server_args=" in measured.log(name)
        assert secret not in measured.log(name)
    assert secret not in deployed.said  # at -vvv
    assert holding(deployed.scratch, secret) == {name for name, each in SECRETS.items() if each == secret}
    assert holding(measured.bench.root, secret) == set()


def holding(folder: Path, secret: str) -> set[str]:
    """Files with a secret, but for those that systemd would have loaded."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "credentials" and secret.encode() in path.read_bytes()
    }


# The simulator's replies are held to the same recordings in the unit tests.
@pytest.mark.parametrize("name", sorted({*REQUESTS} - {"crash_mid_stream"}))
def test_a_reply_has_the_recorded_ones_shape(measured, name):
    assert shapes(*measured.replies[name]) == recorded(name)


@pytest.mark.parametrize("name", BODIES)
def test_what_the_server_says_of_itself_has_the_recorded_keys(measured, name):
    status, _, body = measured.replies[name]

    assert status == 200
    assert missing(shape(json.loads(body)), shape(json.loads((RECORDED / f"{name}.body").read_bytes()))) == []


def missing(real: Any, recorded: Any, where: str = "") -> list[str]:
    """Keys of the recording that the reply lacks. What depends on what was served before may be more."""
    if isinstance(recorded, dict):
        gone = [f"{where}.{key}" for key in recorded if not isinstance(real, dict) or key not in real]
        return gone or [
            each for key in recorded for each in missing(real[key], recorded[key], f"{where}.{key}")
        ]
    if isinstance(recorded, list):
        pairs = zip(real or [], recorded, strict=False)
        return [each for mine, theirs in pairs for each in missing(mine, theirs, f"{where}[]")]
    return []


def test_killed_while_it_generates_it_has_crashed_with_evidence(node):
    name, points = "tp1-ngram", {"points": [1500], "requests": 2, "prompt_tokens": 48}
    node.plan(PLAN, configurations=[name], baseline=name, attempts=1, workloads={"code": points})
    log = node.root / f"{name}.log"

    def kill_when_it_decodes():
        until = time.monotonic() + 600
        # The canary and the warm-up are too short for a line of decoding.
        while "Decode batch" not in (log.read_text(errors="replace") if log.exists() else ""):
            if time.monotonic() > until:
                return
            time.sleep(0.05)
        schedulers = [pid for pid, shown in processes().items() if shown.startswith(b"sglang::scheduler")]
        os.kill(schedulers[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_when_it_decodes, daemon=True)
    killer.start()
    node.run()
    killer.join(10)

    cell = node.cell(f"{name}.code.1500.r1")
    assert (cell.status, cell.reasons[0].code) == ("crashed", "server_crashed")
    assert cell.metrics is None
    assert cell.evidence["signature"]
    assert "Decode batch" in "\n".join(cell.evidence["journal"])
