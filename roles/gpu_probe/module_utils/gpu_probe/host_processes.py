"""Who holds the GPUs: every process with an open GPU device file, with its container.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import os
import re
from typing import Any, Optional

from .reading import Reader

CONTAINER = re.compile(r"/lxc(?:\.payload\.|/)(\d+)(?:/|$)")
UNIT = re.compile(r"/([^/]+\.(?:service|scope))(?:/|$)")
MOST_PROCESSES = 64


def gpu_processes(reader: Reader, proc: str = "/proc") -> Optional[list[dict[str, Any]]]:
    """None without root, since then most processes' files can't be seen."""
    if os.geteuid() != 0:
        reader.missed("GPU processes", "not root")
        return None
    found = []
    for pid in (name for name in os.listdir(proc) if name.isdigit()):
        files = _gpu_files(os.path.join(proc, pid, "fd"))
        if files:
            found.append(_process(os.path.join(proc, pid), int(pid), files))
    return sorted(found, key=lambda process: process["pid"])[:MOST_PROCESSES]


def _gpu_files(folder: str) -> list[str]:
    files = set()
    try:
        for name in os.listdir(folder):
            target = os.readlink(os.path.join(folder, name))
            if target.startswith("/dev/nvidia"):
                files.add(target)
    except OSError:
        pass  # it ended while we looked
    return sorted(files)


def _process(folder: str, pid: int, files: list[str]) -> dict[str, Any]:
    reader = Reader()
    cgroup = reader.text(os.path.join(folder, "cgroup")) or ""
    container = CONTAINER.search(cgroup)
    unit = UNIT.findall(cgroup)
    command = (reader.text(os.path.join(folder, "cmdline")) or "").replace("\0", " ").strip()
    name = (reader.text(os.path.join(folder, "comm")) or "").strip()
    return {
        "pid": pid,
        "name": name,
        # Arguments may hold secrets: the program's name says enough.
        "program": os.path.basename(command.split(" ", 1)[0]) if command else name,
        "vmid": int(container.group(1)) if container else None,
        "unit": unit[-1] if unit else None,
        "files": files,
    }
