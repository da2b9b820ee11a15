"""The texts of the kernel: /proc/devices, /proc/driver/nvidia, PCI devices in sysfs, modules on disk."""

from __future__ import annotations

import platform
import shutil
from typing import TYPE_CHECKING, Any

from . import state

if TYPE_CHECKING:
    from pathlib import Path

# A kernel that the driver was built for, when it was not built for the running one.
OTHER_KERNEL = "6.14.11-4-pve"


def show_devices(settings: dict[str, Any]) -> None:
    """Rewrite the text of /proc/devices in place: it is bind-mounted, so the file must stay the same one."""
    text = devices_text((state.RUN / "kernel-devices").read_text(), settings, state.loaded())
    with (state.RUN / "devices").open("w") as shown:
        shown.write(text)


def devices_text(kernel: str, settings: dict[str, Any], loaded: set[str]) -> str:
    """The kernel's own list with NVIDIA's names in the place of those drivers that play them."""
    characters, _, blocks = kernel.partition("\nBlock devices:\n")
    played = [(settings["nvidia_major"], name) for name in ("nvidia", "nvidia-modeset", "nvidiactl")]
    played = played if state.CORE in loaded else []
    if state.UVM in loaded:
        played.append((settings["uvm"]["major"], state.UVM))
    gone = {settings["nvidia_major"], *settings["hidden_majors"], *(major for major, _ in played)}
    own = [
        (int(major), name) for major, name in (line.split(None, 1) for line in characters.splitlines()[1:])
    ]
    entries = sorted([entry for entry in own if entry[0] not in gone] + played, key=lambda entry: entry[0])
    lines = "".join(f"{major:3d} {name}\n" for major, name in entries)
    return f"Character devices:\n{lines}\nBlock devices:\n{blocks}"


def write_driver_folder(settings: dict[str, Any], folder: Path) -> None:
    """What lies under /proc/driver/nvidia."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "version").write_text(
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {settings['driver_version']}  "
        "Release Build  (lab@stand-in)\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )
    for gpu in settings["gpus"]:
        place = folder / "gpus" / gpu["pci"]
        place.mkdir(parents=True, exist_ok=True)
        (place / "information").write_text(
            f"Model: \t\t {gpu['name']}\nIRQ:   \t\t 0\nGPU UUID: \t {gpu['uuid']}\n"
            f"Video BIOS: \t 98.02.6a.00.03\nBus Type: \t PCIe\n"
            f"DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n"
            f"Bus Location: \t {gpu['pci']}\nDevice Minor: \t {gpu['minor']}\n"
            f"GPU Firmware: \t {settings['driver_version']}\nGPU Excluded:\t No\n"
        )


def write_pci(settings: dict[str, Any], folder: Path) -> None:
    """The files of /sys/bus/pci/devices/<address>/: what the card is, how it is linked, who drives it."""
    folder.mkdir(exist_ok=True)
    texts = {
        "vendor": "0x10de",
        "device": "0x2bb1",
        "class": "0x030000",
        "subsystem_vendor": "0x10de",
        "subsystem_device": "0x204b",
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_width": "16",
        "numa_node": "-1",
        "enable": "1",
    }
    for gpu in settings["gpus"]:
        device = folder / gpu["pci"]
        device.mkdir(exist_ok=True)
        for name, text in texts.items():
            (device / name).write_text(f"{text}\n")
        if settings["driver_built"]:
            (device / "driver").symlink_to("../../../bus/pci/drivers/nvidia")


def write_modules(settings: dict[str, Any], root: Path) -> None:
    """The driver's modules on disk, for the running kernel or another one; their text is their version."""
    built_for = platform.release() if settings["driver_built"] else OTHER_KERNEL
    for kernel in {platform.release(), OTHER_KERNEL}:
        folder = root / kernel / "updates/dkms"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if kernel == built_for:
            for name in ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm"):
                (folder / f"{name}.ko").write_text(f"{settings['driver_version']}\n")
    if settings["driver_built"]:
        shutil.rmtree(root / OTHER_KERNEL)
