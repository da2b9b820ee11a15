"""What is left of a run: its state, its journal, and what the kernel said meanwhile."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from inference_machine import show, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inference_machine import System

JOURNAL_LINES = 200
LOG_LINES = 40
LINE_CHARS = 2000
JOURNAL_BYTES = 16 * 1024 * 1024

RUN_FIELDS = ("_SYSTEMD_INVOCATION_ID", "INVOCATION_ID")
KERNEL = re.compile(
    r"NVRM|Xid|oom|out of memory|killed process|segfault|traps:|general protection", re.IGNORECASE
)


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
