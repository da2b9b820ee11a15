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
from pathlib import Path
from typing import Any

STOP_S = 10.0


class Unit:
    """One configuration's process: started, watched and stopped as a service would be."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.command = command
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self.invocation = ""
        self.started_us = 0
        self.told_to_stop = False

    def start(self) -> None:
        if self.process and self.process.poll() is None:
            return
        self.invocation = uuid.uuid4().hex
        self.started_us = time.monotonic_ns() // 1000
        self.told_to_stop = False
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

    def show(self) -> dict[str, Any]:
        code = self.process.poll() if self.process else None
        alive = self.process is not None and code is None
        clean = alive or code in {None, 0} or self.told_to_stop
        result = "success" if clean else ("signal" if code is not None and code < 0 else "exit-code")
        return {
            "ActiveState": "active" if alive else ("inactive" if clean else "failed"),
            "SubState": "running" if alive else ("dead" if clean else "failed"),
            "Result": result,
            "ExecMainCode": 0 if alive or code is None else (2 if code < 0 else 1),
            "ExecMainStatus": abs(code or 0),
            "MainPID": self.process.pid if self.process and alive else 0,
            "InvocationID": self.invocation,
            "NRestarts": 0,
            "ExecMainStartTimestampMonotonic": self.started_us,
            "ControlGroup": f"/system.slice/inference-{self.name}.service" if alive else "",
            "processes": int(alive),
        }

    def evidence(self) -> dict[str, Any]:
        lines = self.log.read_text(errors="replace").splitlines()[-200:] if self.log.exists() else []
        return {**self.show(), "journal": lines, "kernel": [], "notes": []}

    def _signal(self, number: int) -> None:
        if self.process is not None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return


class ControlServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class StandInControl:
    """`commands` maps a configuration's name to the command that serves it."""

    def __init__(self, socket_path: Path, commands: dict[str, list[str]], logs: Path) -> None:
        self.socket_path = socket_path
        self.units = {name: Unit(name, command, logs / f"{name}.log") for name, command in commands.items()}
        self.asked: list[tuple[str, str]] = []
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
        if verb == "start":
            unit.start()
        elif verb == "stop":
            unit.stop()
        found = unit.evidence() if verb == "evidence" else unit.show()
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
