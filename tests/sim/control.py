"""The control socket's protocol over plain processes: what systemd does for a unit, done with subprocess.

Used where a test needs the runner without systemd: same verbs, same answers, real processes. As a program it
serves until SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socketserver
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STOP_S = 10.0
IDLE_MIB = 4


@dataclass
class Ways:
    """What systemd and the kernel do beyond running the command; `gpu_mib` is what nvidia-smi shows."""

    restart: bool = False  # Restart=always, as a careless service has it
    result: str | None = None  # once it has died: oom-kill
    kernel: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gpu_state: str | None = None  # the stand-in for nvidia-smi's file
    gpu_mib: int = 0
    gpu_kept_by: tuple[int, str] | None = None  # pid and name of what keeps it after the stop


class Unit:
    """One configuration's process: started, watched and stopped as a service would be."""

    def __init__(self, name: str, command: list[str], log: Path, ways: Ways | None = None) -> None:
        self.name = name
        self.command = command
        self.log = log
        self.ways = ways or Ways()
        self.process: subprocess.Popen[bytes] | None = None
        self.invocation = ""
        self.started_us = 0
        self.log_from = 0
        self.restarts = 0
        self.told_to_stop = False

    def start(self) -> None:
        if self.process and self.process.poll() is None:
            return
        self.restarts = 0
        self._spawn()
        self._gpu_memory(self.ways.gpu_mib, (self.process.pid, "sglang::scheduler") if self.process else None)

    def _spawn(self) -> None:
        self.invocation = uuid.uuid4().hex
        self.started_us = time.monotonic_ns() // 1000
        self.told_to_stop = False
        self.log_from = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self) -> None:
        self.told_to_stop = True
        if self.process is None:
            return
        if self.process.poll() is None:
            self._signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self.process.wait()
        self._signal(signal.SIGKILL)  # what is left of its group
        keeper = self.ways.gpu_kept_by
        self._gpu_memory(self.ways.gpu_mib if keeper else 0, keeper)

    def show(self) -> dict[str, Any]:
        code = self.process.poll() if self.process else None
        if code is not None and self.ways.restart and not self.told_to_stop:
            self.restarts += 1
            self._spawn()
            code = None
        alive = self.process is not None and code is None
        clean = alive or code in {None, 0} or self.told_to_stop
        result = "success" if clean else ("signal" if code is not None and code < 0 else "exit-code")
        if not alive and not self.told_to_stop and code is not None and self.ways.result:
            result, clean = self.ways.result, False
        return {
            "ActiveState": "active" if alive else ("inactive" if clean else "failed"),
            "SubState": "running" if alive else ("dead" if clean else "failed"),
            "Result": result,
            "ExecMainCode": 0 if alive or code is None else (2 if code < 0 else 1),
            "ExecMainStatus": abs(code or 0),
            "MainPID": self.process.pid if self.process and alive else 0,
            "InvocationID": self.invocation,
            "NRestarts": self.restarts,
            "ExecMainStartTimestampMonotonic": self.started_us,
            "ControlGroup": f"/system.slice/inference-{self.name}.service" if alive else "",
            "processes": int(alive),
        }

    def log_lines(self, count: int) -> list[str]:
        """Of this run. As journalctl does it, a progress bar's states become lines."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as file:
            file.seek(self.log_from)
            return file.read().decode(errors="replace").splitlines()[-count:]

    def evidence(self) -> dict[str, Any]:
        found = {"journal": self.log_lines(200), "kernel": self.ways.kernel, "notes": self.ways.notes}
        return {**self.show(), **found}

    def _gpu_memory(self, used_mib: int, holder: tuple[int, str] | None) -> None:
        if self.ways.gpu_state is None:
            return
        path = Path(self.ways.gpu_state)
        state = json.loads(path.read_text())
        gpu = state["gpus"][0]
        gpu["memory.used"] = IDLE_MIB + used_mib
        app = {"gpu_uuid": gpu["uuid"], "used_memory": used_mib}
        named = holder and used_mib
        state["apps"] = [{**app, "pid": holder[0], "process_name": holder[1]}] if holder and named else []
        path.write_text(json.dumps(state))

    def _signal(self, number: int) -> None:
        if self.process is not None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return


@dataclass
class Switch:
    """The unit model-stage-switch@ of the role model_stage, for models that take turns.

    `scripts` has what a set's switch writes, one state after the other; the last one stays. The unit rests
    `seconds` after it was asked for.
    """

    sets: list[list[str]]
    models: dict[str, list[str]]  # configuration -> its models
    scripts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    seconds: float = 0.3
    unit_fails: bool = False  # before it writes anything
    begun: list[int] = field(default_factory=list)
    _since: float = 0.0
    _before: dict[str, Any] = field(default_factory=dict)

    def stage(self, name: str) -> dict[str, Any]:
        number = self._number(name)
        if not (self.begun and self.begun[-1] == number and not self._rests()):
            self._before = self._written()
            self.begun.append(number)
            self._since = time.monotonic()
        return {"needed": True, "set": number, "before": self._before.get("run", "")}

    def staging(self, name: str) -> dict[str, Any]:
        rests = self._rests()
        shown = {
            "ActiveState": "inactive" if rests else "activating",
            "Result": "success",
            "ExecMainStatus": 0,
        }
        if self.unit_fails and rests:
            shown = {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": 75}
        log = ["model_stager: another one is at work"] if self.unit_fails and rests else []
        return {
            "needed": True,
            "set": self._number(name),
            **shown,
            "rests": rests,
            "log": log,
            "switch": self._written(),
        }

    def _number(self, name: str) -> int:
        return self.sets.index(self.models[name])

    def _rests(self) -> bool:
        return time.monotonic() - self._since >= self.seconds

    def _written(self) -> dict[str, Any]:
        if not self.begun or self.unit_fails:
            return self._before
        number = self.begun[-1]
        script = self.scripts.get(number) or [{"state": "done", "summary": f"set {number} is there"}]
        passed = min((time.monotonic() - self._since) / self.seconds, 1.0) if self.seconds else 1.0
        now = script[min(int(passed * len(script)), len(script) - 1)]
        run = f"run {len(self.begun)}"
        return {"schema_version": 1, "set": number, "run": run, "models": self.sets[number], **now}


class ControlServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class StandInControl:
    """`commands` maps a configuration's name to the command that serves it."""

    def __init__(self, socket_path: Path, commands: dict[str, list[str]], logs: Path) -> None:
        self.socket_path = socket_path
        self.units = {name: Unit(name, command, logs / f"{name}.log") for name, command in commands.items()}
        self.asked: list[tuple[str, str]] = []
        self.switch: Switch | None = None
        lock = threading.Lock()
        control = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                request = json.loads(self.rfile.readline())
                with lock:
                    reply = control.answer(request)
                self.wfile.write(json.dumps(reply).encode() + b"\n")

        self._server = ControlServer(str(socket_path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for unit in self.units.values():
            unit.stop()

    def answer(self, request: dict[str, str]) -> dict[str, Any]:
        verb, name = request["verb"], request["configuration"]
        self.asked.append((verb, name))
        unit = self.units.get(name)
        if unit is None:
            return {"ok": False, "error": f"no configuration {name} is deployed here"}
        if verb in ("stage", "staging"):
            if self.switch is None:
                return {"ok": True, "needed": False}
            told = self.switch.stage(name) if verb == "stage" else self.switch.staging(name)
            return {"ok": True, "configuration": name, **told}
        if verb == "start":
            unit.start()
        elif verb == "stop":
            unit.stop()
        found = unit.evidence() if verb == "evidence" else unit.show()
        if verb == "log":
            found["journal"] = unit.log_lines(40)
        return {"ok": True, "configuration": name, "unit": f"inference-{name}.service", **found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--commands", type=Path, required=True, help="JSON: configuration -> command")
    parser.add_argument("--pid-file", type=Path, required=True)
    options = parser.parse_args()
    options.socket.unlink(missing_ok=True)
    control = StandInControl(options.socket, json.loads(options.commands.read_text()), options.socket.parent)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    control.start()
    options.pid_file.write_text(f"{os.getpid()}\n")
    stop.wait()
    control.close()


if __name__ == "__main__":
    main()
