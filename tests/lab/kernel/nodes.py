"""The device nodes in the host's /dev."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any


def make_node(path: str, major: int, minor: int) -> None:
    if os.path.lexists(path):
        return
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    Path(path).chmod(0o666)  # whatever the umask is


def make_core_nodes(settings: dict[str, Any], minors: set[int]) -> None:
    """/dev/nvidiactl, and those of these minors for which there is a GPU."""
    major = settings["nvidia_major"]
    make_node("/dev/nvidiactl", major, settings["ctl_minor"])
    for gpu in settings["gpus"]:
        if gpu["minor"] in minors:
            make_node(f"/dev/nvidia{gpu['minor']}", major, gpu["minor"])


def make_uvm_nodes(settings: dict[str, Any]) -> None:
    uvm = settings["uvm"]
    make_node("/dev/nvidia-uvm", uvm["major"], uvm["minor"])
    make_node("/dev/nvidia-uvm-tools", uvm["major"], uvm["tools_minor"])


def remove_uvm_nodes() -> None:
    for path in ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"):
        Path(path).unlink(missing_ok=True)
