#!/usr/bin/env python3
"""Start, stop and look at inference units for a client that isn't root: one JSON line in, one JSON line out.

systemd starts this for each connection (Accept=yes), with the connection as standard input. Who may connect
is the socket's group; what may be touched are the units that have a description file, the switch that puts
their models into memory, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Python's isolated mode leaves the program's own folder out; it is root's, as the program is.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from inference_evidence import evidence, log
from inference_machine import NAME, QUIET, RequestError, System, show, text
from inference_staging import stage, staging

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST_BYTES = 4096
REQUEST_S = 5.0
STOP_GRACE_S = 15.0
EMPTY_S = 10.0

# systemd's own exit statuses: the program never ran. https://www.freedesktop.org/software/systemd/man/systemd.exec.html
NOT_STARTED = {
    200: "its working directory is missing",
    203: "its program cannot be executed: is the engine installed?",
    205: "a limit (LimitMEMLOCK=) is refused here, as in an unprivileged container",
    217: "its user does not exist",
    226: "its hardening is refused here: allow nesting, or set inference_server_hardening_enabled to false",
    238: "its state folder cannot be made",
    239: "its cache folder cannot be made",
    243: "a file with a credential is missing (LoadCredential=)",
}


def start(system: System, unit: str) -> dict[str, Any]:
    # Another server on the same port would answer in this one's place, and be measured under its name.
    for other in (f"inference-{name}.service" for name in system.names()):
        state = system.properties(other, ("ActiveState",)).get("ActiveState", "")
        if other != unit and state not in QUIET:
            raise RequestError(f"{unit} is not started: {other} is still {state}; stop it first")
    system.run(["systemctl", "reset-failed", "--", unit])  # fails where nothing had failed: no matter
    done = system.run(["systemctl", "--no-ask-password", "start", "--", unit])
    shown = show(system, unit)
    if done.returncode != 0:
        why = NOT_STARTED.get(shown["ExecMainStatus"], text(done.stderr).strip())
        status = shown["ExecMainStatus"]
        raise RequestError(f"{unit} did not start (result {shown['Result']}, status {status}): {why}")
    return shown


def stop(system: System, unit: str) -> dict[str, Any]:
    raw = system.properties(unit, ("TimeoutStopUSec", "ControlGroup"))
    done = system.run(
        ["systemctl", "--no-ask-password", "stop", "--", unit],
        timeout_s=seconds(raw.get("TimeoutStopUSec", "")) + STOP_GRACE_S,
    )
    if done.returncode != 0:
        raise RequestError(f"systemctl stop {unit}: {text(done.stderr).strip()}")
    deadline = time.monotonic() + EMPTY_S
    while left := system.processes(raw.get("ControlGroup", "")):
        if time.monotonic() > deadline:
            pids = ", ".join(str(pid) for pid in left[:10])
            raise RequestError(f"{unit} is stopped, but {len(left)} of its processes did not end: {pids}")
        time.sleep(0.05)
    return show(system, unit)


def seconds(span: str) -> float:
    """Systemd's way to write a time span: `1min 30s`, `90s`, `infinity`."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
    parts = re.findall(r"([\d.]+)\s*(us|ms|min|s|h)\b", span)
    return sum(float(number) * units[unit] for number, unit in parts) if parts else 90.0


VERBS = {"start": start, "stop": stop, "show": show, "log": log, "evidence": evidence}
MODEL_VERBS = {"stage": stage, "staging": staging}


def parse(request: bytes) -> tuple[str, str]:
    """Verb and configuration of a request; anything unexpected in it is refused."""
    try:
        asked = json.loads(request)
    except ValueError as exc:
        raise RequestError(f"the request is not a JSON line: {exc}") from exc
    if not isinstance(asked, dict) or set(asked) != {"verb", "configuration"}:
        raise RequestError('a request is {"verb": …, "configuration": …} and nothing else')
    verb, name = asked["verb"], asked["configuration"]
    known = (*VERBS, *MODEL_VERBS)
    if not isinstance(verb, str) or verb not in known:
        raise RequestError(f"unknown verb {verb!r}; known: {', '.join(known)}")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestError("a configuration's name has letters, digits, - and _, at most 80")
    return verb, name


def answer(request: bytes, system: System) -> dict[str, Any]:
    """The answer to one request; never raises for anything a client sends."""
    try:
        verb, name = parse(request)
        description = system.description(name)
        unit = str(description["unit"])
        told = MODEL_VERBS[verb](system, description) if verb in MODEL_VERBS else VERBS[verb](system, unit)
    except RequestError as exc:
        return {"ok": False, "error": str(exc)}
    return {"ok": True, "configuration": name, "unit": unit, **told}


def read_line(connection: socket.socket, limit_s: float = REQUEST_S) -> bytes:
    """One line from the client, within a time and a size."""
    deadline = time.monotonic() + limit_s
    received = b""
    while b"\n" not in received and len(received) <= REQUEST_BYTES:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            piece = connection.recv(REQUEST_BYTES)
        except socket.timeout as exc:  # not yet TimeoutError in Python 3.9
            raise RequestError(f"no whole request within {limit_s:.0f} s") from exc
        if not piece:
            break
        received += piece
    line = received.partition(b"\n")[0]
    if len(line) > REQUEST_BYTES:
        raise RequestError(f"a request is at most {REQUEST_BYTES} bytes")
    return line


def handle(connection: socket.socket, system: System, limit_s: float = REQUEST_S) -> dict[str, Any]:
    """Serve one request on a connection; returns what was answered."""
    try:
        given = answer(read_line(connection, limit_s), system)
    except RequestError as exc:
        given = {"ok": False, "error": str(exc)}
    connection.settimeout(REQUEST_S)
    connection.sendall(json.dumps(given, sort_keys=True).encode() + b"\n")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Answer one request on the socket that is standard input.")
    parser.add_argument(
        "--descriptions", type=Path, required=True, help="folder with the configurations' JSON files"
    )
    options = parser.parse_args(argv)
    try:
        with socket.socket(fileno=0) as connection:
            given = handle(connection, System(options.descriptions))
    except OSError as exc:
        sys.stderr.write(f"the client is gone: {exc}\n")
        return 0
    if not given["ok"]:
        sys.stderr.write(f"refused: {given['error']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
