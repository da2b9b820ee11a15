"""Run a program of the host with a time limit, so that a hung `pct` can't hang the playbook."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

# Takes a command; returns its exit code, its output and its error output.
Run = Callable[["list[str]"], "tuple[int, str, str]"]
TIMED_OUT = 124


def runner(limit_s: float) -> Run:
    def run(command: list[str]) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                command,
                check=False,
                capture_output=True,
                timeout=limit_s,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            return 127, "", f"{command[0]} is not installed on this host"
        except subprocess.TimeoutExpired:
            return TIMED_OUT, "", f"no answer within {limit_s:g} s"
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    return run


def find(program: str) -> str:
    """Its path, or "": sbin is not on every path that Ansible gets."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin") or ""


def node_helper(dev_dir: Path, limit_s: float) -> Callable[[list[str]], object] | None:
    """NVIDIA's program that makes device nodes. It only knows /dev."""
    program = find("nvidia-modprobe") if dev_dir == Path("/dev") else ""
    run = runner(limit_s)
    return (lambda arguments: run([program, *arguments])) if program else None


def pve_version() -> str:
    """`8.2.4`, or "" where this can't be told."""
    code, out, _ = runner(10.0)(["pveversion"])
    parts = out.split("/")
    return parts[1] if code == 0 and len(parts) > 1 else ""
