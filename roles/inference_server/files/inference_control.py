#!/usr/bin/env python3
"""Start, stop and look at inference units for a client that isn't root: one JSON line in, one JSON line out.

systemd starts this for each connection (Accept=yes), with the connection as standard input. Who may connect
is the socket's group; what may be touched are the units that have a description file, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")
REQUEST_BYTES = 4096
REQUEST_S = 5.0
COMMAND_S = 30.0
STOP_GRACE_S = 15.0
EMPTY_S = 10.0
JOURNAL_LINES = 200
LOG_LINES = 40
LINE_CHARS = 2000
JOURNAL_BYTES = 16 * 1024 * 1024

NUMBERS = ("ExecMainCode", "ExecMainStatus", "MainPID", "NRestarts", "ExecMainStartTimestampMonotonic")
TEXTS = ("ActiveState", "SubState", "Result", "InvocationID", "ControlGroup")
RUN_FIELDS = ("_SYSTEMD_INVOCATION_ID", "INVOCATION_ID")
QUIET = ("inactive", "failed")
KERNEL = re.compile(
    r"NVRM|Xid|oom|out of memory|killed process|segfault|traps:|general protection", re.IGNORECASE
)

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


class RequestError(Exception):
    """A request that is refused or that failed; the text goes to the client."""


class System:
    """The machine: replaced by a folder and a program in the tests."""

    def __init__(self, descriptions: Path, cgroups: Path = Path("/sys/fs/cgroup"), bin_dir: str = "") -> None:
        self.descriptions = descriptions
        self.cgroups = cgroups
        self.bin_dir = bin_dir

    def run(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> subprocess.CompletedProcess[bytes]:
        program = self.bin_dir + argv[0]
        try:
            return subprocess.run(
                [program, *argv[1:]], stdin=DEVNULL, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as exc:
            raise RequestError(f"{' '.join(argv)} did not end within {timeout_s:.0f} s") from exc
        except OSError as exc:
            raise RequestError(f"{program} cannot be run: {exc.strerror}") from exc

    def description(self, name: str) -> Mapping[str, Any]:
        path = self.descriptions / f"{name}.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            if raw["unit"] != f"inference-{name}.service":
                raise RequestError(f"{path} names the unit {raw['unit']}, not inference-{name}.service")
        except FileNotFoundError as exc:
            known = ", ".join(self.names()) or "none"
            raise RequestError(f"no configuration {name} is deployed here; known: {known}") from exc
        except (OSError, ValueError, TypeError, KeyError) as exc:
            raise RequestError(f"{path} cannot be read: {exc}; deploy again") from exc
        return dict(raw)

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.descriptions.glob("*.json") if NAME.fullmatch(path.stem))

    def properties(self, unit: str, names: Sequence[str]) -> dict[str, str]:
        done = self.run(["systemctl", "show", f"--property={','.join(names)}", "--", unit])
        if done.returncode != 0:
            raise RequestError(f"systemctl show {unit}: {text(done.stderr).strip()}")
        pairs = (line.partition("=") for line in text(done.stdout).splitlines())
        return {key: value for key, _, value in pairs}

    def processes(self, control_group: str) -> list[int]:
        """Every process of a control group and those below it; a group that is gone has none."""
        if not control_group:
            return []
        roots = [self.cgroups, self.cgroups / "unified", self.cgroups / "systemd"]
        root = next((each for each in roots if (each / "cgroup.procs").exists()), self.cgroups)
        pids: list[int] = []
        for path in (root / control_group.lstrip("/")).glob("**/cgroup.procs"):
            try:
                pids += [int(line) for line in path.read_text(encoding="ascii").split()]
            except OSError:  # noqa: PERF203 - the group ended between the look and the read
                continue
        return pids


def text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def show(system: System, unit: str) -> dict[str, Any]:
    raw = system.properties(unit, (*TEXTS, *NUMBERS))
    shown: dict[str, Any] = {name: raw.get(name, "") for name in TEXTS}
    shown.update({name: int(raw[name]) if raw.get(name, "").isdigit() else 0 for name in NUMBERS})
    shown["processes"] = len(system.processes(shown["ControlGroup"]))
    return shown


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


def evidence(system: System, unit: str) -> dict[str, Any]:
    """State, last log lines of the unit's last run, and what the kernel said since that run began."""
    found: dict[str, Any] = {**show(system, unit), "journal": [], "kernel": [], "notes": []}
    since_us = found["ExecMainStartTimestampMonotonic"]
    if not found["InvocationID"]:
        # systemd forgets a unit that has ended with status 0, as a crashed server can; its journal remembers.
        found["InvocationID"], since_us = last_run(system, unit)
    if found["InvocationID"]:
        found["journal"], found["notes"] = run_lines(system, found["InvocationID"], JOURNAL_LINES)
    # The kernel's log is the machine's: its lines may be of another container. --syslog needs no /dev/kmsg.
    done = system.run(["dmesg", "--syslog", "--raw"])
    if done.returncode != 0:
        found["notes"].append(f"dmesg: {text(done.stderr).strip()}")
    if since_us:
        found["kernel"] = kernel_lines(lines(done.stdout), since_us / 1e6 - 1.0)[-JOURNAL_LINES:]
    return found


def log(system: System, unit: str) -> dict[str, Any]:
    """State and newest log lines of the run that is on: cheap enough to be asked while a model loads."""
    found = show(system, unit)
    said, notes = run_lines(system, found["InvocationID"], LOG_LINES) if found["InvocationID"] else ([], [])
    return {**found, "journal": said, "notes": notes}


def run_lines(system: System, invocation: str, count: int) -> tuple[list[str], list[str]]:
    """A run's last lines, and why there are none where the journal can't be read."""
    # --all: a line with colours or a progress bar would else be replaced by "[blob data]".
    query = ["journalctl", "--no-pager", "--all", "--output=cat", f"--lines={count}"]
    done = system.run([*query, *of_run(invocation)])
    notes = [] if done.returncode == 0 else [f"journalctl: {text(done.stderr).strip()}"]
    return lines(done.stdout)[-count:], notes


def of_run(invocation: str) -> list[str]:
    """Journal matches: what the run itself wrote, and what systemd wrote about it."""
    return [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]


def last_run(system: System, unit: str) -> tuple[str, int]:
    """Invocation and start (microseconds, monotonic) of the unit's last run in this boot, by the journal."""
    query = ["journalctl", "--no-pager", "--output=json"]
    # Not --boot: hardening uncovers the machine's boot id below the one that LXC gives a container.
    newest = records(system.run([*query, "--lines=1"]).stdout)
    last = records(system.run([*query, "--lines=1", f"--unit={unit}"]).stdout)
    invocation = next((str(each[key]) for each in last for key in RUN_FIELDS if key in each), "")
    if not invocation or newest[-1]["_BOOT_ID"] != last[-1]["_BOOT_ID"]:
        return "", 0
    told = records(system.run([*query, f"INVOCATION_ID={invocation}"]).stdout)
    return invocation, min((int(each["__MONOTONIC_TIMESTAMP"]) for each in told), default=0)


def records(raw: bytes) -> list[dict[str, Any]]:
    """Journalctl's JSON lines; it says "-- No entries --" where it has none."""
    return [json.loads(line) for line in text(raw).splitlines() if line.startswith("{")]


def lines(raw: bytes) -> list[str]:
    return [line[:LINE_CHARS] for line in text(raw[-JOURNAL_BYTES:]).splitlines()]


def kernel_lines(raw: Sequence[str], since_s: float) -> list[str]:
    """Lines about GPUs, memory and crashes since a monotonic time: the kernel log's clock too."""
    found = []
    for line in raw:
        stamp = re.match(r"(?:<\d+>)?\[\s*(\d+\.\d+)\]", line)
        if stamp and float(stamp.group(1)) >= since_s and KERNEL.search(line):
            found.append(line)
    return found


VERBS = {"start": start, "stop": stop, "show": show, "log": log, "evidence": evidence}


def parse(request: bytes) -> tuple[str, str]:
    """Verb and configuration of a request; anything unexpected in it is refused."""
    try:
        asked = json.loads(request)
    except ValueError as exc:
        raise RequestError(f"the request is not a JSON line: {exc}") from exc
    if not isinstance(asked, dict) or set(asked) != {"verb", "configuration"}:
        raise RequestError('a request is {"verb": …, "configuration": …} and nothing else')
    verb, name = asked["verb"], asked["configuration"]
    if not isinstance(verb, str) or verb not in VERBS:
        raise RequestError(f"unknown verb {verb!r}; known: {', '.join(VERBS)}")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestError("a configuration's name has letters, digits, - and _, at most 80")
    return verb, name


def answer(request: bytes, system: System) -> dict[str, Any]:
    """The answer to one request; never raises for anything a client sends."""
    try:
        verb, name = parse(request)
        unit = str(system.description(name)["unit"])
        result = VERBS[verb](system, unit)
    except RequestError as exc:
        return {"ok": False, "error": str(exc)}
    return {"ok": True, "configuration": name, "unit": unit, **result}


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
