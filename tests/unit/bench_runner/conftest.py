"""A whole campaign in a scratch folder: plan, descriptions, a stand-in for systemd, servers as processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from bench_runner.campaign import Outcome, run
from bench_runner.prepared import Wishes
from bench_runner.records import CellFile, Folder, decode_cell
from bench_runner.server import lifecycle

from tests.sim.control import StandInControl
from tests.sim.sglang_shaped import Behaviour, SimServer

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "roles/bench_run/files"
SIMULATOR = ROOT / "tests/sim/sglang_shaped.py"
LLAMA_SERVER = ROOT / "roles/inference_server/files/llama_server.py"
TINY_MODEL = ROOT / "tests/data/models/tiny-qwen2.gguf"

SMALL_PLAN: dict[str, Any] = {
    "schema_version": 1,
    "name": "small",
    "baseline": "tp1-auto",
    "configurations": ["tp1-auto"],
    "workloads": {"code": {"points": [8, 16], "requests": 2, "prompt_tokens": 48}},
    "limits": {"server_ready_s": 20, "cell_s": 30, "stall_s": 5},
    # Answers of milliseconds, and a machine that is busy with other tests.
    "tolerance": {"client_ms": 5000},
}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class Bench:
    """One node as the runner sees it."""

    root: Path
    commands: dict[str, list[str]] = field(default_factory=dict)
    control: StandInControl | None = None

    def __post_init__(self) -> None:
        self.configurations = self.root / "configurations"
        self.configurations.mkdir()
        self.folder = Folder(self.root / "bench" / "small")
        self.folder.root.mkdir(parents=True)
        self.folder.environment.write_text(json.dumps({"node": "ct200", "host": "pve", "host_facts": {}}))
        self.plan(SMALL_PLAN)

    def plan(self, plan: dict[str, Any], **changes: Any) -> None:
        self.folder.plan.write_text(yaml.safe_dump({**plan, **changes}, sort_keys=False))

    def deploy(self, name: str, command: list[str], port: int, **described: Any) -> None:
        description = {
            "schema_version": 1,
            "configuration": name,
            "unit": f"inference-{name}.service",
            "url": f"http://127.0.0.1:{port}",
            "engine": "sglang",
            "engine_build": "sglang 0.5.23",
            "model": "sim",
            "served_model": "sim",
            "model_path": "/dev/shm/sim",
            "model_digest": "0" * 64,
            "tensor_parallelism": 1,
            "context_tokens": 2048,
            "flags": {"configuration": name},
            "adapter": "sglang",
            **described,
        }
        (self.configurations / f"{name}.json").write_text(json.dumps(description))
        self.commands[name] = command

    def simulate(
        self, name: str, behaviour: dict[str, Any] | None = None, *, port: int | None = None, **described: Any
    ) -> None:
        """Deploy a server that behaves like that; deployed again, the next start behaves anew."""
        port = port or free_port()
        command = [
            sys.executable,
            str(SIMULATOR),
            "--port",
            str(port),
            "--behaviour",
            json.dumps(behaviour or {}),
        ]
        self.deploy(name, command, port, **described)
        if self.control and name in self.control.units:
            self.control.units[name].command = command

    def llama(self, name: str, *flags: str) -> None:
        port = free_port()
        command = [sys.executable, str(LLAMA_SERVER), "--model", str(TINY_MODEL), "--alias", "tiny"]
        size = ["--port", str(port), "--ctx-size", "8192", "--parallel", "4", "--threads", "1", "--metrics"]
        self.deploy(
            name,
            [*command, *size, *flags],
            port,
            engine="llamacpp",
            engine_build="llama.cpp",
            adapter="llamacpp",
            served_model="tiny",
            model="tiny",
            flags={"flags": list(flags)},
        )

    @property
    def socket_path(self) -> Path:
        return self.root / "control.sock"

    def start_control(self) -> StandInControl:
        if self.control is None:
            self.control = StandInControl(self.socket_path, self.commands, self.root)
            self.control.start()
        return self.control

    def run(self, **options: Any) -> Outcome:
        self.start_control()
        return run(self.folder, self.configurations, self.socket_path, Wishes(**options))

    def start_process(self) -> subprocess.Popen[str]:
        """The runner as its own process: to be told to stop, or killed."""
        self.start_control()
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench_runner",
                "run",
                f"--dir={self.folder.root}",
                f"--configurations={self.configurations}",
                f"--control={self.socket_path}",
            ],
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def cell(self, name: str) -> CellFile:
        return decode_cell(self.folder.cell(name).read_bytes())

    def points(self, configuration: str) -> list[int]:
        """Of the `code` cells that there are, in order."""
        return sorted(
            int(path.name.split(".")[2]) for path in self.folder.cells.glob(f"{configuration}.code.*.json")
        )

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.folder.journal.read_bytes().splitlines()]

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.folder.status.read_bytes()))

    def check_schemas(self) -> None:
        """Everything in the folder keeps the contract."""
        schemas = {
            name: json.loads((ROOT / f"collector/schemas/{name}.schema.json").read_bytes())
            for name in ("cell", "journal", "status")
        }
        for path in self.folder.cells.glob("*.json"):
            jsonschema.validate(json.loads(path.read_bytes()), schemas["cell"])
        for event in self.events():
            jsonschema.validate(event, schemas["journal"])
        jsonschema.validate(self.status(), schemas["status"])

    def close(self) -> None:
        if self.control:
            self.control.close()


@pytest.fixture
def bench(tmp_path, monkeypatch):
    # Our stand-in dies at once, so the patience that SGLang's slow death needs would only be waited out.
    monkeypatch.setattr(lifecycle, "_DYING_S", 0.3)
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def simulator():
    """A simulated server in this process: `simulator(Behaviour(...))` gives its port."""
    servers: list[tuple[SimServer, threading.Thread]] = []

    def start(behaviour: Behaviour) -> int:
        server = SimServer(0, behaviour)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        servers.append((server, thread))
        return int(server.server_address[1])

    yield start
    for server, thread in servers:
        server.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()
