"""The operator's hands in the lab: run a playbook, break something, look at what came of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).parents[2]
NODE, HOST, CAMPAIGN = "ct200", "pve", "lab-small"
CU_INIT = "python3 -c \"import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))\""
COLORS = re.compile(r"\x1b\[[0-9;]*[mK]")


@dataclass
class Run:
    """A finished run: its exit status, what it printed, and its record."""

    status: int
    output: str
    recovery: dict[str, Any] | None
    conf_before: str = ""

    @property
    def words(self) -> str:
        """The output as one line, so that a test doesn't depend on where it was wrapped."""
        return " ".join(self.output.split())


class Operator:
    """Someone at a terminal in the project's folder, with a results folder of their own."""

    def __init__(self, results: Path) -> None:
        self.results = results

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
            "RECOVERY_REPORT": str(self.results / "recovery.json"),
        }

    def command(self, playbook: str, *arguments: str, inventory: Path | None = None) -> list[str]:
        return [
            "ansible-playbook",
            *("-i", str(inventory or "inventory/lab")),
            playbook,
            *("-e", f"results_dir={self.results}"),
            *arguments,
        ]

    def run(
        self,
        playbook: str = "recover-and-bench.yml",
        *arguments: str,
        inventory: Path | None = None,
        timeout_s: float = 400,
    ) -> Run:
        """Run a playbook to its end; its output is also shown when the test fails."""
        record = self.results / "recovery.json"
        before = record.stat().st_mtime_ns if record.exists() else None
        done = subprocess.run(
            self.command(playbook, *arguments, inventory=inventory),
            cwd=PROJECT,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        output = COLORS.sub("", done.stdout)
        sys.stdout.write(output)
        fresh = record.exists() and record.stat().st_mtime_ns != before
        return Run(done.returncode, output, json.loads(record.read_text()) if fresh else None)

    def start(self, playbook: str = "recover-and-bench.yml", *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(playbook, *arguments),
            cwd=PROJECT,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def cells(self, campaign: str = CAMPAIGN) -> dict[str, dict[str, Any]]:
        """The cells that were collected: name -> content of the cell's file."""
        files = sorted((self.results / "raw" / NODE / campaign / "cells").glob("*.json"))
        return {path.stem: json.loads(path.read_text()) for path in files}


def lab(*words: str) -> str:
    """Run a verb of the lab's own tool; its words."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab", *words],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lab_inventory(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Path:
    """The lab's own inventory as a file, with its host's and its node's variables changed."""
    described = json.loads(lab("inventory"))
    variables = described["_meta"]["hostvars"]
    groups = {
        group: {"hosts": {name: variables.get(name, {}) for name in described[group]["hosts"]}}
        for group in ("pve_hosts", "nodes")
    }
    change(groups["pve_hosts"]["hosts"][HOST], groups["nodes"]["hosts"][NODE])
    path.write_text(yaml.safe_dump({"lab": {"children": groups, "vars": described["lab"]["vars"]}}))
    return path


def on(name: str, command: str) -> str:
    """Run a shell command on a machine of the lab; its output."""
    return lab("ssh", name, command)


def wait_until(true: Any, *, within_s: float, what: str) -> None:
    """Wait for a fact; `what` names it when it does not come."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.2)


def staged_sum() -> str:
    """The sha256 of the model in the node's memory."""
    return on(NODE, "find /dev/shm -name '*.gguf' -exec sha256sum {} +").split()[0]


def right_sum() -> str:
    return hashlib.sha256(next((PROJECT / "tests/data/models").glob("*.gguf")).read_bytes()).hexdigest()


def ok_cells() -> dict[str, str]:
    """Finished cells on the node: name -> checksum of its file; none before the campaign has begun."""
    files = f"/var/lib/bench/{CAMPAIGN}/cells/*.json"
    found = on(NODE, f'grep -lE \'"status": ?"ok"\' {files} 2>/dev/null | xargs -r sha256sum')
    return {name: digest for digest, name in (line.split() for line in found.splitlines())}


def running() -> bool:
    """Whether the runner is at work on the node."""
    return on(NODE, f"systemctl is-active bench-run-{CAMPAIGN}.service || true").strip() == "active"


def uvm_major() -> int:
    """The major that the host's kernel gives to nvidia-uvm now."""
    return int(on(HOST, "awk '$2 == \"nvidia-uvm\" {print $1}' /proc/devices"))
