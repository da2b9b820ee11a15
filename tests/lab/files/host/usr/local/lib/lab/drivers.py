"""The host's NVIDIA kernel side, played by existing drivers; runs at boot, as modprobe, as nvidia-modprobe.

Bind mounts show it where programs look: /proc/devices, /proc/driver/nvidia and the PCI devices in sysfs.
"""

from __future__ import annotations

import json
import os
import platform
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import nvidia_smi  # type: ignore[import-not-found]  # beside this file on the host

SETTINGS = Path("/var/lib/lab/drivers.json")
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
GPU_SETTINGS = SETTINGS.parent / "gpu-settings.json"
STATE = Path("/run/lab-drivers")
UVM_NAMES = {"nvidia-uvm", "nvidia_uvm"}
OTHER_NAMES = {"nvidia", "nvidia-modeset", "nvidia_modeset", "nvidia-drm", "nvidia_drm"}


def load() -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(SETTINGS.read_text())
    return settings


def boot() -> None:
    settings = load()
    STATE.mkdir(mode=0o755, exist_ok=True)
    (STATE / "kernel-devices").write_text(Path("/proc/devices").read_text())
    (STATE / "uvm").write_text("1" if settings["uvm_loaded_at_boot"] else "0")
    show_devices(settings)
    link_libraries(settings["driver_version"])
    write_driver_folder(settings)
    write_pci(settings)
    boot_gpu_settings(settings)
    for source, target in (
        (GPU_SETTINGS, STATE / "driver/nvidia/lab-settings.json"),
        (STATE / "devices", "/proc/devices"),
        (STATE / "driver", "/proc/driver"),
        (STATE / "pci", "/sys/bus/pci/devices"),
    ):
        subprocess.run(["mount", "--rbind", source, target], check=True)
    for gpu in settings["gpus"]:
        make_node(f"/dev/nvidia{gpu['minor']}", settings["nvidia_major"], gpu["minor"])
    make_node("/dev/nvidiactl", settings["nvidia_major"], settings["ctl_minor"])
    if settings["uvm_loaded_at_boot"]:
        make_uvm_nodes(settings)
    for path in settings["missing_at_boot"]:
        Path(path).unlink(missing_ok=True)


def link_libraries(version: str) -> None:
    for name in ("libcuda.so", "libnvidia-ml.so"):
        link = LIBRARIES / f"{name}.1"
        link.unlink(missing_ok=True)
        link.symlink_to(SETTINGS.parent / "libraries" / f"{name}.{version}")


def boot_gpu_settings(settings: dict[str, Any]) -> None:
    """A boot applies what is pending in the GPUs' own memory (ECC, MIG) and forgets the other settings."""
    before = json.loads(GPU_SETTINGS.read_text()) if GPU_SETTINGS.exists() else {"gpus": []}
    known = {gpu["uuid"]: gpu for gpu in before["gpus"]}
    gpus = []
    for index, gpu in enumerate(settings["gpus"]):
        fresh = nvidia_smi.new_gpu(index, gpu["uuid"], f"0000{gpu['pci']}".upper(), gpu["name"])
        kept = {**fresh, **known.get(gpu["uuid"], {}), "index": index}
        gpus.append({**kept, "driver_version": settings["driver_version"]})
    state = {"gpus": gpus, "faults": {}, "calls": []}
    nvidia_smi.reboot(state)
    GPU_SETTINGS.write_text(json.dumps(state, indent=1))
    (STATE / "driver/nvidia/lab-settings.json").touch()


def uvm_loaded() -> bool:
    return (STATE / "uvm").read_text() == "1"


def show_devices(settings: dict[str, Any]) -> None:
    """Rewrite the text of /proc/devices in place: it is bind-mounted, so the file must stay the same one."""
    kernel = (STATE / "kernel-devices").read_text()
    characters, _, blocks = kernel.partition("\nBlock devices:\n")
    gone = {settings["nvidia_major"], settings["uvm"]["major"], *settings["hidden_majors"]}
    if not uvm_loaded() and settings["uvm"]["major"] not in settings["hidden_majors"]:
        gone.discard(settings["uvm"]["major"])
    entries = [
        (int(major), name)
        for major, name in (line.split(None, 1) for line in characters.splitlines()[1:] if line.strip())
        if int(major) not in gone
    ]
    entries += [(settings["nvidia_major"], name) for name in ("nvidia", "nvidia-modeset", "nvidiactl")]
    if uvm_loaded():
        entries.append((settings["uvm"]["major"], "nvidia-uvm"))
    entries.sort(key=lambda entry: entry[0])
    lines = "".join(f"{major:3d} {name}\n" for major, name in entries)
    with (STATE / "devices").open("w") as shown:
        shown.write(f"Character devices:\n{lines}\nBlock devices:\n{blocks}")


def write_driver_folder(settings: dict[str, Any]) -> None:
    folder = STATE / "driver/nvidia"
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


def write_pci(settings: dict[str, Any]) -> None:
    """The files of /sys/bus/pci/devices/<address>/ that say what the card is and how it is linked."""
    for gpu in settings["gpus"]:
        device = STATE / "pci" / gpu["pci"]
        device.mkdir(parents=True, exist_ok=True)
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
        for name, text in texts.items():
            (device / name).write_text(f"{text}\n")
        driver = device / "driver"
        if not driver.is_symlink():
            driver.symlink_to("../../../bus/pci/drivers/nvidia")
    (STATE / "pci").mkdir(exist_ok=True)


def make_node(path: str, major: int, minor: int) -> None:
    if os.path.lexists(path):
        return
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    Path(path).chmod(0o666)  # whatever the umask is


def make_uvm_nodes(settings: dict[str, Any]) -> None:
    uvm = settings["uvm"]
    make_node("/dev/nvidia-uvm", uvm["major"], uvm["minor"])
    make_node("/dev/nvidia-uvm-tools", uvm["major"], uvm["tools_minor"])


def load_uvm(settings: dict[str, Any]) -> None:
    if not uvm_loaded():
        (STATE / "uvm").write_text("1")
        show_devices(settings)


def unload_uvm(settings: dict[str, Any]) -> None:
    (STATE / "uvm").write_text("0")
    show_devices(settings)
    for path in ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"):
        Path(path).unlink(missing_ok=True)


def modprobe(arguments: list[str]) -> int:
    """Modprobe loads a module and makes no device node; nvidia-modprobe does both."""
    settings = load()
    names = [argument for argument in arguments if not argument.startswith("-")]
    remove = "-r" in arguments or "--remove" in arguments
    for name in names[:1] if not {"-a", "--all"} & set(arguments) else names:
        if name in UVM_NAMES:
            if remove:
                unload_uvm(settings)
            else:
                load_uvm(settings)
        elif name not in OTHER_NAMES:
            sys.stderr.write(
                f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{platform.release()}\n"
            )
            return 1
    return 0


def nvidia_modprobe(arguments: list[str]) -> int:
    """As the setuid helper: -u means nvidia-uvm and its nodes, -c N the node of minor N."""
    settings = load()
    uvm = False
    minors: list[int] = []
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        if argument in {"-u", "--unified-memory"}:
            uvm = True
        elif argument in {"-c", "--create-nvidia-device-file"} and index + 1 < len(arguments):
            index += 1
            minors.append(int(arguments[index]))
        elif argument.startswith(("-c=", "--create-nvidia-device-file=")):
            minors.append(int(argument.split("=", 1)[1]))
        index += 1
    if uvm:
        load_uvm(settings)
        if minors:
            make_uvm_nodes(settings)
        return 0
    make_node("/dev/nvidiactl", settings["nvidia_major"], settings["ctl_minor"])
    known = {gpu["minor"] for gpu in settings["gpus"]}
    for minor in minors:
        if minor in known:
            make_node(f"/dev/nvidia{minor}", settings["nvidia_major"], minor)
    return 0


def main(arguments: list[str]) -> int:
    verb, *rest = arguments
    if verb == "boot":
        boot()
        return 0
    if verb == "unload-uvm":
        unload_uvm(load())
        return 0
    return {"modprobe": modprobe, "nvidia-modprobe": nvidia_modprobe}[verb](rest)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
