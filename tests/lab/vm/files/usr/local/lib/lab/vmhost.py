"""The NVIDIA kernel side as modules of the VM's own kernel: `python3 -m vmhost boot|nvidia-modprobe …`.

/proc/devices and /sys/module are the kernel's. What is no device number (GPUs on PCI, /proc/driver/nvidia)
is shown as in the container lab.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel import nodes, shown, state  # type: ignore[import-not-found]  # tests/lab/kernel, beside this file there

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTIONS = Path("/run/modprobe.d/lab-nvidia.conf")


def boot() -> None:
    from kernel import boot as lab_boot  # noqa: PLC0415 (needs nvidia_smi)

    settings = state.load_settings()
    state.RUN.mkdir(mode=0o755, exist_ok=True)
    (state.RUN / "driver").mkdir(exist_ok=True)
    OPTIONS.parent.mkdir(exist_ok=True)
    OPTIONS.write_text(f"options nvidia-uvm lab_major={settings['uvm']['major']}\n")
    names = lab_boot.modules_at_boot(settings)
    for name in sorted(names):
        modprobe(name)
    if state.CORE in names:
        driver = state.RUN / "driver/nvidia"
        shown.write_driver_folder(settings, driver)
        lab_boot.boot_gpu_settings(settings)
        (driver / "lab-settings.json").touch()
        bind(lab_boot.GPU_SETTINGS, driver / "lab-settings.json")
        nodes.make_core_nodes(settings, {gpu["minor"] for gpu in settings["gpus"]})
    if state.UVM in names:
        nodes.make_uvm_nodes(settings)
    shown.write_pci(settings, state.RUN / "pci")
    lab_boot.link_libraries(settings["driver_version"])
    bind(state.RUN / "driver", Path("/proc/driver"))
    bind(state.RUN / "pci", Path("/sys/bus/pci/devices"))


def nvidia_modprobe(arguments: Sequence[str]) -> int:
    """As the setuid helper: -u means nvidia-uvm and its nodes, -c N the node of minor N."""
    parser = argparse.ArgumentParser(prog="nvidia-modprobe")
    parser.add_argument("-u", "--unified-memory", action="store_true")
    parser.add_argument("-c", "--create-nvidia-device-file", type=int, action="append", default=[])
    options, _ = parser.parse_known_args(arguments)
    settings: dict[str, Any] = state.load_settings()
    modprobe(state.UVM if options.unified_memory else state.CORE)
    if options.unified_memory:
        if options.create_nvidia_device_file:
            nodes.make_uvm_nodes(settings)
    else:
        nodes.make_core_nodes(settings, set(options.create_nvidia_device_file))
    return 0


def modprobe(name: str) -> None:
    subprocess.run(["/usr/sbin/modprobe", name], check=True)


def bind(source: Path, target: Path) -> None:
    subprocess.run(["mount", "--rbind", source, target], check=True)


def main(verb: str, *arguments: str) -> int:
    if verb == "boot":
        boot()
        return 0
    return nvidia_modprobe(arguments)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
