"""Who holds the GPUs: every process with an open GPU device file, with its container.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from .reading import Reader

CONTAINER = re.compile(r"/lxc(?:\.payload\.|/)(\d+)(?:/|$)")
UNIT = re.compile(r"/([^/]+\.(?:service|scope))(?:/|$)")
MOST_PROCESSES = 64


def gpu_processes(reader: Reader, proc: str = "/proc") -> list[dict[str, Any]] | None:
    """None without root, since then most processes' files can't be seen."""
    if os.geteuid() != 0:
        reader.missed("GPU processes", "not root")
        return None
    found = []
    for name in os.listdir(proc):  # noqa: PTH208 - hundreds of thousands of links: pathlib takes three times as long
        files = _gpu_files(f"{proc}/{name}/fd") if name.isdigit() else []
        if files:
            found.append(_process(Path(proc, name), files))
    return sorted(found, key=lambda process: process["pid"])[:MOST_PROCESSES]


def _gpu_files(folder: str) -> list[str]:
    files = set()
    try:
        for name in os.listdir(folder):  # noqa: PTH208 - as above
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - as above
            if target.startswith("/dev/nvidia"):
                files.add(target)
    except OSError:
        pass  # it ended while we looked
    return sorted(files)


def _process(folder: Path, files: list[str]) -> dict[str, Any]:
    reader = Reader()
    cgroup = reader.text(str(folder / "cgroup")) or ""
    container = CONTAINER.search(cgroup)
    unit = UNIT.findall(cgroup)
    command = (reader.text(str(folder / "cmdline")) or "").replace("\0", " ").strip()
    name = (reader.text(str(folder / "comm")) or "").strip()
    return {
        "pid": int(folder.name),
        "name": name,
        # Arguments may hold secrets: the program's name says enough.
        "program": Path(command.split(" ", 1)[0]).name if command else name,
        "vmid": int(container.group(1)) if container else None,
        "unit": unit[-1] if unit else None,
        "files": files,
    }
