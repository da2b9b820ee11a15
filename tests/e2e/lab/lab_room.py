"""A room that stays open for a test, and what is asked of its machines."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
ENTER = [sys.executable, "-m", "tests.lab", "enter", "--"]
MARK = "--- ended with"
PROBE = textwrap.dedent(
    """
    import ctypes, errno, json, os
    def attempt(path):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NOCTTY))
        except OSError as exc:
            return errno.errorcode[exc.errno]
        return "opens"
    cuda = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int(-1)
    found = {
        "uvm": attempt("/dev/nvidia-uvm"),
        "gpu": attempt("/dev/nvidia0"),
        "cuInit": cuda.cuInit(0),
        "gpus": (cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)[1],
        "shm": os.listdir("/dev/shm"),
    }
    print(json.dumps(found))
    """
)


class Room:
    """A shell in a room that stays open; each command is run in it and has no input."""

    def __init__(self) -> None:
        self.shell = subprocess.Popen(
            [*ENTER, "bash"],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, command: str, *, status: int = 0) -> str:
        self.shell.stdin.write(f"{{ {command}\n}} </dev/null; status=$?; echo; echo {MARK} $status\n")
        self.shell.stdin.flush()
        lines = []
        for line in self.shell.stdout:
            if line.startswith(MARK):
                said = "".join(lines).rstrip("\n")
                assert int(line.split()[-1]) == status, said
                return said
            lines.append(line)
        pytest.fail("the room ended: " + "".join(lines))

    def lab(self, words: str, *, status: int = 0) -> str:
        return self(f"{sys.executable} -m tests.lab {words}", status=status)

    def on(self, machine: str, script: str, *, status: int = 0) -> str:
        """Run a shell script on a machine."""
        # A quoted here-document: what stands in the script is the far shell's business.
        text = f"ssh -F /run/lab/ssh/config {machine} sh -e 2>&1 <<'SCRIPT'\n{script}\nSCRIPT"
        return self(text, status=status)

    def probe(self, node: str = "ct200") -> dict:
        return json.loads(self.on(node, f"python3 - <<'PROBE'\n{PROBE}\nPROBE").splitlines()[-1])

    def uvm_major(self) -> int:
        devices = self.on("pve", "cat /proc/devices").splitlines()
        return next(int(line.split()[0]) for line in devices if line.endswith(" nvidia-uvm"))

    def repair(self) -> None:
        """Do it by hand: a rule for nvidia-uvm's major, then a restart of the container."""
        rule = f"lxc.cgroup2.devices.allow: c {self.uvm_major()}:* rwm"
        self.on("pve", f"echo '{rule}' >> /etc/pve/lxc/200.conf; pct reboot 200")
        self.wait_for("ct200")

    def wait_for(self, machine: str) -> None:
        self(f"until ssh -nF /run/lab/ssh/config {machine} true 2>/dev/null; do sleep .1; done")

    def close(self) -> None:
        self.shell.stdin.close()
        self.shell.wait(30)
        self.shell.stdout.close()
