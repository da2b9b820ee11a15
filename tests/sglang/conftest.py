"""SGLang on the CPU: installed once into a cache, deployed by the role, started as its units say."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import ansible.module_utils
import pytest
from bench_runner.server.lifecycle import Server

from tests.sglang.units import Unit
from tests.sim.shapes import BODIES, REQUESTS, ask
from tests.unit.bench_runner.conftest import Bench, free_port

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
# The role's pure code is imported as Ansible imports it.
ansible.module_utils.__path__.append(str(PROJECT / "roles/inference_server/module_utils"))
SECRETS = {"api-key": "sk-real-0123456789abcdef", "hub-token": "hf_real0123456789abcdef"}
PLAN = {
    "schema_version": 1,
    "name": "small",
    "baseline": "tp1-auto",
    "configurations": ["tp1-auto", "tp1-ngram", "tp1-standalone"],
    "workloads": {"code": {"points": [64], "requests": 2, "prompt_tokens": 48}},
    # The first start with n-grams compiles them.
    "limits": {"server_ready_s": 400, "cell_s": 200, "stall_s": 60},
    "canary": {"output_tokens": 32, "floor_tps": 0.5},
    "tolerance": {"client_ms": 5000},
}


def processes() -> dict[int, bytes]:
    """Each process's command line and environment."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            found[int(path.name)] = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:  # noqa: PERF203 - it ended between the look and the reading
            continue
    return found


@dataclass(frozen=True)
class Deployed:
    """What the role left in a scratch folder, and what it said."""

    scratch: Path
    venv: Path
    said: str

    def unit(self, name: str) -> Unit:
        return Unit.read(self.scratch / f"units/inference-{name}.service")

    def description(self, name: str) -> dict:
        return json.loads((self.scratch / f"configurations/{name}.json").read_text())

    @property
    def answer(self) -> dict:
        """What the build said of itself: its name and its flags."""
        return json.loads((self.scratch / "cache/sglang.json").read_text())


@pytest.fixture(scope="session")
def venv() -> Path:
    done = subprocess.run([HERE / "install"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def deployed(venv, tmp_path_factory) -> Deployed:
    scratch = tmp_path_factory.mktemp("node")
    (scratch / "tiny-qwen2").symlink_to(PROJECT / "tests/data/models/tiny-qwen2")
    for name, secret in SECRETS.items():
        (scratch / name).touch(mode=0o600)
        (scratch / name).write_text(f"{secret}\n")
    given = {
        "scratch": str(scratch),
        "sglang_venv": str(venv),
        "inference_server_port": free_port(),
        "inference_server_user": pwd.getpwuid(os.geteuid()).pw_name,
        "inference_server_control_group": grp.getgrgid(os.getegid()).gr_name,
    }
    command = [
        "ansible-playbook",
        "-vvv",
        "-i",
        "localhost,",
        HERE / "deploy.yml",
        "-e",
        f"@{HERE}/settings.yml",
    ]
    done = subprocess.run(
        [*command, "-e", json.dumps(given)],
        cwd=PROJECT,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ANSIBLE_ROLES_PATH": str(PROJECT / "roles"),
            "ANSIBLE_STDOUT_CALLBACK": "default",
            "LC_ALL": "C.UTF-8",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout
    return Deployed(scratch, venv, done.stdout)


def make_node(deployed: Deployed, root: Path) -> Bench:
    """A node that serves what was deployed, for a campaign of its own."""
    bench = Bench(root)
    loaded = root / "credentials"
    loaded.mkdir()
    for name in PLAN["configurations"]:
        described = deployed.description(name)
        (bench.configurations / f"{name}.json").write_text(json.dumps(described))
        (loaded / f"{name}.api_key").write_text(SECRETS["api-key"])
        # One home for all: what the first start compiles is there for the next.
        bench.commands[name] = deployed.unit(name).start_command(deployed.scratch / "home")
    bench.plan(PLAN)
    return bench


def end(bench: Bench) -> None:
    if bench.control:
        for unit in bench.control.units.values():
            unit.stop()
    bench.close()


@dataclass
class Seen:
    """What was looked at while each server of the campaign was still up, by configuration."""

    bench: Bench
    processes: dict[str, dict[int, bytes]] = field(default_factory=dict)
    replies: dict[str, tuple[int, list[str], bytes]] = field(default_factory=dict)

    def log(self, name: str) -> str:
        return (self.bench.root / f"{name}.log").read_text(errors="replace")


def replies(port: int, headers: dict[str, str]) -> dict[str, tuple[int, list[str], bytes]]:
    """To each request that was recorded; but for the crash, which is a test of its own."""
    asked = {name: request for name, request in REQUESTS.items() if name != "crash_mid_stream"}
    asked |= {name: (path, None) for name, path in BODIES.items()}
    found = {}
    for name, request in asked.items():
        ask(port, *request, **headers)  # the recorded ones found their prompts in the cache
        found[name] = ask(port, *request, **headers)
    return found


@pytest.fixture(scope="session")
def measured(deployed, tmp_path_factory):
    """One campaign over all configurations."""
    seen = Seen(make_node(deployed, tmp_path_factory.mktemp("measured")))
    stop = Server.stop

    async def look_and_stop(self):
        name = self.deployment.configuration
        seen.processes[name] = processes()
        if name == "tp1-ngram":
            seen.replies = await asyncio.to_thread(replies, self.port, self.engine.headers)
        return await stop(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CREDENTIALS_DIRECTORY", str(seen.bench.root / "credentials"))
        patch.setattr(Server, "stop", look_and_stop)
        seen.bench.run()
        yield seen
    end(seen.bench)


@pytest.fixture
def node(deployed, tmp_path, monkeypatch):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    bench = make_node(deployed, tmp_path)
    yield bench
    end(bench)
