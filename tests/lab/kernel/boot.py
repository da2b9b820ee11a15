"""The boot of the host, as far as its GPUs go."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nvidia_smi  # type: ignore[import-not-found]  # tests/sim/nvidia_smi.py; on the host beside this package

from . import nodes, shown, state

GPU_SETTINGS = state.SETTINGS.parent / "gpu-settings.json"
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")


def boot() -> None:
    settings = state.load_settings()
    state.RUN.mkdir(mode=0o755, exist_ok=True)
    (state.RUN / "kernel-devices").write_text(Path("/proc/devices").read_text())
    state.set_loaded(modules_at_boot(settings))
    driver = state.RUN / "driver/nvidia"
    if state.CORE in state.loaded():
        shown.write_driver_folder(settings, driver)
        boot_gpu_settings(settings)
        (driver / "lab-settings.json").touch()
        _bind(GPU_SETTINGS, driver / "lab-settings.json")
    driver.parent.mkdir(exist_ok=True)
    shown.show_devices(settings)
    shown.write_pci(settings, state.RUN / "pci")
    shown.write_modules(settings, Path("/lib/modules"))
    link_libraries(settings["driver_version"])
    _bind(state.RUN / "devices", Path("/proc/devices"))
    _bind(state.RUN / "driver", Path("/proc/driver"))
    _bind(state.RUN / "pci", Path("/sys/bus/pci/devices"))
    _make_nodes(settings)


def modules_at_boot(settings: dict[str, Any]) -> set[str]:
    if not settings["driver_built"]:
        return set()
    return {state.CORE, state.UVM} if settings["uvm_loaded_at_boot"] else {state.CORE}


def boot_gpu_settings(settings: dict[str, Any]) -> None:
    """A boot applies what is pending in the GPUs' own memory (ECC, MIG) and forgets the other settings."""
    before = json.loads(GPU_SETTINGS.read_text()) if GPU_SETTINGS.exists() else {"gpus": []}
    known = {gpu["uuid"]: gpu for gpu in before["gpus"]}
    gpus = []
    for index, gpu in enumerate(settings["gpus"]):
        fresh = nvidia_smi.new_gpu(index, gpu["uuid"], f"0000{gpu['pci']}".upper(), gpu["name"])
        kept = {**fresh, **known.get(gpu["uuid"], {}), "index": index}
        gpus.append({**kept, "driver_version": settings["driver_version"]})
    found = {"gpus": gpus, "faults": {}, "calls": []}
    nvidia_smi.reboot(found)
    GPU_SETTINGS.write_text(json.dumps(found, indent=1))


def link_libraries(version: str) -> None:
    """The user side of the driver, as its package installs it."""
    for name in ("libcuda.so", "libnvidia-ml.so"):
        link = LIBRARIES / f"{name}.1"
        link.unlink(missing_ok=True)
        link.symlink_to(state.SETTINGS.parent / "libraries" / f"{name}.{version}")


def _make_nodes(settings: dict[str, Any]) -> None:
    if state.CORE in state.loaded():
        nodes.make_core_nodes(settings, {gpu["minor"] for gpu in settings["gpus"]})
    if state.UVM in state.loaded():
        nodes.make_uvm_nodes(settings)
    for path in settings["missing_at_boot"]:
        Path(path).unlink(missing_ok=True)


def _bind(source: Path, target: Path) -> None:
    subprocess.run(["mount", "--rbind", source, target], check=True)
