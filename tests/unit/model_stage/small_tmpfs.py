"""Real small tmpfs mounts, made and taken away by a test that runs as root."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

MIB = 1 << 20


@contextlib.contextmanager
def mounted(folder, mib):
    """A tmpfs of so many MiB; the test is skipped where nobody may mount."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,nosuid,nodev,mode=1777", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs can't be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def size_mib(folder):
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize / MIB


def options(folder):
    """As the kernel has them."""
    fields = (line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines())
    return next(field[3].split(",") for field in fields if field[1] == str(folder))
