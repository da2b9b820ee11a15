"""Stands in for systemd-run, systemctl and journalctl where no systemd runs.

Called under one of these names, found through PATH. Units are real detached processes, with a file as log.
A unit that is not transient is a file `<unit>.exec` with its command; it is enabled when it says so.
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


def is_ending(unit: str) -> bool:
    return (STATE / f"{unit}.ending").exists()


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
    properties = values(options, "--property")
    hooks = {
        name: [run.lstrip("+") for run in values(properties, name)]
        for name in ("ExecStartPre", "ExecStopPost")
    }
    if not any(hooks.values()):
        launch(unit, command, environment)
        return 0
    return supervised(unit, command, environment, hooks)


def launch(unit: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (STATE / f"{unit}.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
        )
    (STATE / f"{unit}.pid").write_text(f"{process.pid}\n")
    return process


def supervised(
    unit: str, command: list[str], environment: dict[str, str], hooks: dict[str, list[str]]
) -> int:
    """A unit with commands before and after it: its child waits for it, as systemd would."""
    failed = any(run_hook(each) for each in hooks["ExecStartPre"])
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(reading)
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        process = None if failed else launch(unit, command, environment)
        os.close(writing)
        if process is not None:
            (STATE / f"{unit}.ending").touch()
            process.wait()
        for each in hooks["ExecStopPost"]:
            run_hook(each)
        (STATE / f"{unit}.ending").unlink(missing_ok=True)
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)  # until it runs
    os.close(reading)
    return int(failed)


def run_hook(command: str) -> int:
    """Their programs have full paths; the stand-in of that name lies beside this one."""
    program, *words = command.split()
    return subprocess.run([Path(__file__).with_name(Path(program).name), *words], check=False).returncode


def systemctl(words: list[str]) -> int:
    verb, units = words[0], [word for word in words[1:] if not word.startswith("--")]
    for unit in units:
        if verb == "show":
            show(unit, words)
        elif verb == "start" and pid_of(unit) is None:
            launch(unit, (STATE / f"{unit}.exec").read_text().splitlines()[0].split(), dict(os.environ))
        elif verb == "stop":
            stop(unit)
    return 0


def show(unit: str, words: list[str]) -> None:
    active = "active" if pid_of(unit) else ("deactivating" if is_ending(unit) else "inactive")
    file = STATE / f"{unit}.exec"
    found = {
        "LoadState": "loaded" if file.exists() or pid_of(unit) else "not-found",
        "ActiveState": active,
        "UnitFileState": "enabled" if file.exists() and "enabled" in file.read_text().splitlines() else "",
    }
    for name in values(words, "--property"):
        value = found.get(name, "")
        sys.stdout.write(f"{value}\n" if "--value" in words else f"{name}={value}\n")


def stop(unit: str) -> None:
    pid = pid_of(unit)
    if pid:
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_S
    while (pid_of(unit) or is_ending(unit)) and time.monotonic() < until:
        time.sleep(0.05)


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
