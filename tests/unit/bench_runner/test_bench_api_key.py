"""A server that wants a key is measured with it, and nothing that is left behind or shown has the key."""

import asyncio
import importlib
import json
from pathlib import Path

import ansible.module_utils
import pytest
import requests
from bench_runner.server.lifecycle import Server

from tests.unit.bench_runner.conftest import ROOT, SMALL_PLAN

pytest.importorskip("xllamacpp")

_MODULE_UTILS = str(ROOT / "roles/bench_run/module_utils")
if _MODULE_UTILS not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_MODULE_UTILS)

KEY = "sk-0123456789-abcdef"


@pytest.fixture
def guarded(bench, monkeypatch):
    """llama.cpp's server with a key, as its unit and the campaign's have it: loaded by systemd for each."""
    loaded = bench.root / "credentials"
    loaded.mkdir()
    for name in ("api_key", "tp1-auto.api_key"):
        (loaded / name).write_text(f"{KEY}\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(loaded))
    bench.llama("tp1-auto")
    bench.plan(SMALL_PLAN, workloads={"code": {"points": [8], "requests": 2, "prompt_tokens": 16}})
    path = bench.configurations / "tp1-auto.json"
    # Only root may read this one.
    path.write_text(json.dumps(json.loads(path.read_text()) | {"api_key_file": "/nonexistent/api-key"}))
    return bench


def shown_by_processes() -> bytes:
    shown = b""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            shown += (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:  # noqa: PERF203 - it ended between the look and the reading
            continue
    return shown


def test_a_server_with_a_key_is_measured_and_the_key_is_nowhere(guarded, monkeypatch):
    seen = []
    stop = Server.stop

    async def look_and_stop(self):
        url = f"{self.deployment.url}/v1/completions"
        answer = await asyncio.to_thread(requests.post, url, json={"prompt": "a"}, timeout=5)
        seen.append((answer.status_code, shown_by_processes()))
        return await stop(self)

    monkeypatch.setattr(Server, "stop", look_and_stop)
    guarded.run()

    assert guarded.cell("tp1-auto.code.8.r1").status == "ok"
    ((without_key, shown),) = seen
    assert without_key == 401
    assert b"llama_server.py" in shown
    assert KEY.encode() not in shown
    kept = {
        path for path in guarded.root.rglob("*") if path.is_file() and KEY in path.read_text(errors="replace")
    }
    assert {path.parent.name for path in kept} == {"credentials"}


def test_a_key_that_cannot_be_read_fails_the_cells_and_names_the_file(guarded, monkeypatch):
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")

    guarded.run()

    cell = guarded.cell("tp1-auto.code.8.r1")
    assert cell.status == "failed"
    assert "the API key of tp1-auto is to be in /nonexistent/api-key, which can't be read" in str(
        cell.reasons
    )


def test_the_campaigns_unit_is_given_the_keys_of_its_servers(guarded):
    unit = importlib.import_module("ansible.module_utils.bench_run.unit")
    names = ("campaign", "root", "owner", "group", "hardened", "retry", "python", "control_socket")

    command = unit.start_command(
        dict.fromkeys(names, "x")
        | {
            "plan": {"configurations": ["tp1-auto", "tp1-unknown"]},
            "configurations_dir": str(guarded.configurations),
        }
    )

    loaded = [word for word in command if "LoadCredential" in word]
    assert loaded == ["--property=LoadCredential=tp1-auto.api_key:/nonexistent/api-key"]
