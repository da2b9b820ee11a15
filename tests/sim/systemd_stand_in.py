"""Stands in for systemd-run, systemctl and journalctl where no systemd runs.

Called under one of these names, found through PATH. Units are real detached processes, with a file as log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ.get("SYSTEMD_STAND_IN", Path(__file__).parent))
STOP_S = 20.0


def pid_of(unit: str) -> int | None:
    """The unit's process, while it lives; a zombie is dead."""
    try:
        pid = int((STATE / f"{unit}.pid").read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else pid


def values(words: list[str], name: str) -> list[str]:
    return [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]


def systemd_run(words: list[str]) -> int:
    at = words.index("--")
    options, command = words[:at], words[at + 1 :]
    (unit,) = values(options, "--unit")
    if pid_of(unit) is not None:
        sys.stderr.write(f"Failed to start transient service unit: Unit {unit} was already loaded.\n")
        return 1
    (STATE / f"{unit}.command").write_text("\n".join(words) + "\n")
    environment = dict(os.environ)
    for assignments in values(options, "--property"):
        if assignments.startswith("Environment="):
            pairs = assignments.partition("=")[2].split()
            environment.update(dict(pair.split("=", 1) for pair in pairs))
    with (STATE / f"{unit}.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
        )
    (STATE / f"{unit}.pid").write_text(f"{process.pid}\n")
    return 0


def systemctl(words: list[str]) -> int:
    verb, unit = words[0], words[-1]
    pid = pid_of(unit)
    if verb == "show":
        sys.stdout.write("active\n" if pid else "inactive\n")
    elif verb == "stop" and pid:
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + STOP_S
        while pid_of(unit) and time.monotonic() < until:
            time.sleep(0.05)
    return 0


def journalctl(words: list[str]) -> int:
    (unit,) = values(words, "--unit")
    (lines,) = values(words, "--lines")
    log = STATE / f"{unit}.log"
    said = log.read_text().splitlines() if log.exists() else []
    sys.stdout.write("".join(f"{line}\n" for line in said[-int(lines) :]))
    return 0


if __name__ == "__main__":
    name = Path(sys.argv[0]).name
    sys.exit(
        {"systemd-run": systemd_run, "systemctl": systemctl, "journalctl": journalctl}[name](sys.argv[1:])
    )
