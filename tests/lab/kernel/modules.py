"""modprobe and nvidia-modprobe: the first loads a module and makes no device node, the second does both."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from . import nodes, shown, state

UVM_NAMES = {"nvidia-uvm", "nvidia_uvm"}
CORE_NAMES = {"nvidia", "nvidia-modeset", "nvidia_modeset", "nvidia-drm", "nvidia_drm"}


def modprobe(arguments: list[str]) -> int:
    names = [argument for argument in arguments if not argument.startswith("-")]
    every = {"-a", "--all"} & set(arguments)
    remove = {"-r", "--remove"} & set(arguments)
    for name in names if every else names[:1]:
        if name not in UVM_NAMES | CORE_NAMES or not state.load_settings()["driver_built"]:
            folder = f"/lib/modules/{platform.release()}"
            sys.stderr.write(f"modprobe: FATAL: Module {name} not found in directory {folder}\n")
            return 1
        if name in UVM_NAMES:
            unload_uvm() if remove else load_uvm()
    return 0


def load_uvm() -> None:
    if state.UVM not in state.loaded():
        state.set_loaded({state.CORE, state.UVM})
        shown.show_devices(state.load_settings())


def unload_uvm() -> None:
    state.set_loaded(state.loaded() - {state.UVM})
    shown.show_devices(state.load_settings())
    nodes.remove_uvm_nodes()


def nvidia_modprobe(arguments: list[str]) -> int:
    """As the setuid helper: -u means nvidia-uvm and its nodes, -c N the node of minor N."""
    settings = state.load_settings()
    if not settings["driver_built"]:
        return 1
    rest = list(arguments)
    uvm, minors = False, set()
    while rest:
        name, _, value = rest.pop(0).partition("=")
        if name in {"-u", "--unified-memory"}:
            uvm = True
        elif name in {"-c", "--create-nvidia-device-file"}:
            minors.add(int(value or rest.pop(0)))
    if uvm:
        load_uvm()
        if minors:
            nodes.make_uvm_nodes(settings)
    else:
        nodes.make_core_nodes(settings, minors)
    return 0


def modinfo(arguments: list[str]) -> int:
    """`modinfo -F version FILE`: the stand-in modules on disk have their version as their text."""
    path = Path(arguments[-1])
    if arguments[:2] != ["-F", "version"] or not path.is_file():
        sys.stderr.write(f"modinfo: ERROR: Module {path} not found.\n")
        return 1
    sys.stdout.write(path.read_text())
    return 0
