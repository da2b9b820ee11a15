"""The host's drivers: majors, device nodes, loaded modules, and the module files for the running kernel.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

from .reading import Reader, describe_node, errno_name, gpu_node_paths, module_version, real_path

MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nouveau", "vfio_pci")
MODULE_FILE = re.compile(r"^nvidia\.ko(\.(xz|gz|zst))?$")
MOST_BELOW = 500
DEVICE_IN_CONFIG = re.compile(r"/dev/[A-Za-z0-9_./-]+")


def proc_devices(reader: Reader, path: str) -> list[list[Any]] | None:
    """The character majors of the running kernel as [major, name]; None where they can't be read."""
    text = reader.text(path)
    if text is None:
        return None
    found: list[list[Any]] = []
    for line in text.splitlines():
        if line.startswith("Block devices"):
            break
        words = line.split(None, 1)
        if len(words) > 1 and words[0].isdigit():
            found.append([int(words[0]), words[1].strip()])
    return found


def major_records(reader: Reader, path: str) -> dict[str, Any]:
    """Which majors were NVIDIA's on this host at earlier boots, as pve_lxc wrote them down."""
    text = reader.text(path, optional=True)
    try:
        majors = json.loads(text)["majors"] if text else {}
    except (ValueError, KeyError, TypeError):
        reader.missed(path, "not readable as records of majors")
        return {}
    return dict(majors) if isinstance(majors, dict) else {}


def device_nodes(reader: Reader, config_texts: list[str], dev: str) -> list[dict[str, Any]]:
    """Every GPU node, and each other node that a container config names (also a missing one)."""
    named = {path.rstrip("/.") for text in config_texts for path in DEVICE_IN_CONFIG.findall(text)}
    nodes = [describe_node(path, dev) for path in sorted(named | set(gpu_node_paths(reader, dev)))]
    for node in nodes:
        if node["type"] == "directory":
            node["majors_below"] = majors_below(real_path(node["path"], dev))
    return nodes


def majors_below(folder: Path) -> list[int]:
    """The drivers of a whole folder that a container may mount, as /dev/bus/usb."""
    found = set()
    for _number, path in zip(range(MOST_BELOW), folder.rglob("*")):
        mode = path.lstat()
        if stat.S_ISCHR(mode.st_mode):
            found.add(os.major(mode.st_rdev))
    return sorted(found)


def driver_facts(reader: Reader, *, proc_driver: str, sys_module: str, modules_root: str) -> dict[str, Any]:
    """Versions of what is loaded and of what lies on disk for this kernel."""
    text = reader.text(f"{proc_driver}/version", optional=True)
    kernel = os.uname().release
    return {
        "version": module_version(reader, f"{proc_driver}/version"),
        "open_modules": "Open Kernel Module" in text if text else None,
        "gpus": driver_gpus(reader, f"{proc_driver}/gpus"),
        "modules": loaded_modules(reader, sys_module),
        "module_file": module_file(reader, modules_root, kernel),
        "built_for": built_for(reader, modules_root),
        "dkms": dkms_status(reader),
        "secure_boot": secure_boot(reader),
    }


def driver_gpus(reader: Reader, folder: str) -> list[dict[str, Any]]:
    """The GPUs that the driver has taken: which node number belongs to which PCI address and UUID."""
    keys = {"Model": "name", "GPU UUID": "uuid", "Bus Location": "pci", "Device Minor": "minor"}
    found = []
    for name in reader.names(folder, optional=True):
        gpu: dict[str, Any] = {}
        for line in (reader.text(f"{folder}/{name}/information", optional=True) or "").splitlines():
            label, _, value = line.partition(":")
            if label in keys and value.strip():
                gpu[keys[label]] = value.strip()
        minor = gpu.pop("minor", "")
        if minor.isdigit():
            gpu["minor"] = int(minor)
        found.append(gpu)
    return sorted(found, key=lambda gpu: gpu.get("minor", 0))


def loaded_modules(reader: Reader, sys_module: str) -> dict[str, dict[str, str | None]]:
    """Name → version and srcversion of each GPU-related module that is loaded."""
    present = set(reader.names(sys_module))
    found = {}
    for name in MODULES:
        if name in present:
            facts = {
                key: reader.text(f"{sys_module}/{name}/{key}", optional=True)
                for key in ("version", "srcversion")
            }
            found[name] = {key: text.strip() if text else None for key, text in facts.items()}
    return found


def module_file(reader: Reader, modules_root: str, kernel: str) -> dict[str, str | None] | None:
    """The nvidia module on disk for one kernel; {} when there is none, None when that can't be known."""
    root = Path(modules_root, kernel)
    if not root.is_dir():
        reader.missed(str(root), "no module folder for the running kernel")
        return None
    for folder, _folders, files in os.walk(root):
        for name in files:
            if MODULE_FILE.match(name):
                path = f"{folder}/{name}"
                return {"path": path, "version": _file_version(reader, path)}
    return {}


def _file_version(reader: Reader, path: str) -> str | None:
    modinfo = shutil.which("modinfo", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if modinfo is None:
        return None
    answer = reader.command([modinfo, "-F", "version", path])
    return answer["stdout"].strip() or None


def built_for(reader: Reader, modules_root: str) -> list[str]:
    """The kernels for which some nvidia module lies on disk (looks only where modules are put)."""
    found = []
    for kernel in reader.names(modules_root, optional=True):
        for place in ("updates/dkms", "updates", "extra", "kernel/drivers/video", "kernel/nvidia"):
            names = reader.names(f"{modules_root}/{kernel}/{place}", optional=True)
            if any(MODULE_FILE.match(name) for name in names):
                found.append(kernel)
                break
    return found


def dkms_status(reader: Reader) -> list[str]:
    """The lines of `dkms status` about nvidia; none where dkms isn't used."""
    dkms = shutil.which("dkms", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if dkms is None:
        return []
    answer = reader.command([dkms, "status"])
    if answer["rc"] is None:
        reader.missed("dkms status", answer["why"])
    return [line.strip() for line in answer["stdout"].splitlines() if "nvidia" in line]


def secure_boot(reader: Reader, folder: str = "/sys/firmware/efi/efivars") -> bool | None:
    """True or false by the EFI variable; False where the machine did not boot by EFI."""
    if not Path(folder).parent.is_dir():
        return False
    for name in reader.names(folder):
        if name.startswith("SecureBoot-"):
            try:
                return Path(folder, name).read_bytes()[-1:] == b"\x01"
            except OSError as exc:
                reader.missed(f"{folder}/{name}", errno_name(exc.errno))
    return None
