"""nvidia-smi as a tool that may be missing, may hang, and says "All done." when nothing was done.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Sequence
from typing import Callable

from .readings import FIELDS, IDENTITY, UNKNOWN_FIELD, Gpu, read_csv

LIMIT_S = 60.0
GRACE_S = 1.0
# It ends with status 0 after these: its exit status proves nothing.
REFUSED = re.compile(
    r"Treating as warning|is not supported|not a valid|Unable to|Failed to|Insufficient Permissions"
    r"|Terminating early|Invalid (combination|argument)",
    re.IGNORECASE,
)
NOISE = re.compile(
    r"^\s*$|^All done\.?$|^Treating as warning|^Terminating early|^Warning: persistence mode is disabled"
)

# What it says when there is nothing to talk to -> (kind, what it means and what to do).
SILENT = (
    (
        re.compile(r"couldn't communicate with the NVIDIA driver", re.IGNORECASE),
        "driver_not_loaded",
        "the NVIDIA driver is not loaded: modprobe nvidia, or build it for this kernel (see diagnose.yml)",
    ),
    (
        re.compile(r"Driver/library version mismatch", re.IGNORECASE),
        "library_mismatch",
        "its library and the loaded driver have different versions: reboot the host, or reload the driver",
    ),
    (
        re.compile(r"No devices were found", re.IGNORECASE),
        "no_gpu",
        "the driver finds no GPU (fell off the bus, or bound to another driver: see diagnose.yml)",
    ),
    (
        re.compile(r"Insufficient Permissions", re.IGNORECASE),
        "no_permission",
        "root is needed, and a host whose GPUs may be changed (not a container)",
    ),
)

Answer = tuple[int, str, str]  # status, output, messages
Run = Callable[[Sequence[str]], Answer]


class SmiError(Exception):
    """nvidia-smi gives no reading. `kind` names why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def run(argv: Sequence[str], *, limit_s: float = LIMIT_S) -> Answer:
    """Run a command. One that does not end is left: a sick driver blocks even its death."""
    env = dict(os.environ, LC_ALL="C", LANG="C")
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except FileNotFoundError as exc:
        raise SmiError("missing", f"{argv[0]} is not on this host: is the driver installed?") from exc
    except OSError as exc:
        raise SmiError("missing", f"{argv[0]} can't be run: {exc.strerror}") from exc
    try:
        output, messages = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as exc:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        raise SmiError(
            "no_answer",
            f"{' '.join(argv)} gave no answer within {limit_s:g} s (process {process.pid}): a GPU hangs; "
            "see the kernel log for Xid lines",
        ) from exc
    return process.returncode, output.decode("utf-8", "replace"), messages.decode("utf-8", "replace")


class Smi:
    def __init__(self, command: Sequence[str], run_: Run = run) -> None:
        self._command = list(command)
        self._run = run_

    def gpus(self) -> list[Gpu]:
        """All GPUs in one query; asked again without the fields that this driver does not know."""
        fields = list(FIELDS)
        while True:
            asked = ",".join([*IDENTITY, *fields])
            status, output, messages = self._run(
                [*self._command, f"--query-gpu={asked}", "--format=csv,noheader,nounits"]
            )
            unknown = [name for name in UNKNOWN_FIELD.findall(output + messages) if name in fields]
            if unknown:
                fields = [name for name in fields if name not in unknown]
                continue
            self._require_answer(status, output + messages)
            return read_csv(output, tuple(fields))

    def apply(self, arguments: Sequence[str], pci: Sequence[str]) -> tuple[int, str]:
        """Change a setting of some GPUs; the caller judges the status and what was said."""
        status, output, messages = self._run([*self._command, "-i", ",".join(pci), *arguments])
        return status, output + messages

    def _require_answer(self, status: int, output: str) -> None:
        for words, kind, meaning in SILENT:
            if words.search(output):
                raise SmiError(kind, f"{self._command[0]} has no answer: {meaning}")
        if status != 0:
            said = " ".join(output.split()) or "nothing"
            raise SmiError("failed", f"{self._command[0]} ended with status {status} and said: {said[:400]}")


def refusal(status: int, output: str) -> list[str]:
    """The lines that say why a change was not made; none when nothing speaks against it."""
    if status == 0 and not REFUSED.search(output):
        return []
    said = [line.strip().rstrip(".") for line in output.splitlines() if not NOISE.match(line)]
    return said or [f"it ended with status {status} and said nothing"]
