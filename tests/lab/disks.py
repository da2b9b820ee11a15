"""What is on the machines' disks before their first boot: the upper directories of their root overlays."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import drivers, keys, models, paths
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from tests.lab.fleet import Fleet, Host, Node

LIBRARY_FOLDER = Path("usr/lib/x86_64-linux-gnu")
LIBRARIES = {"libcuda.c": "libcuda.so", "libnvml.c": "libnvidia-ml.so"}


def make_disks(fleet: Fleet, donors: tuple[drivers.Donor, ...], gpus: int, model: str) -> None:
    libraries = build_libraries(paths.STATE / "libraries", drivers.DRIVER_VERSION)
    for host in fleet.hosts:
        settings = drivers.make_settings(host.number, gpus, donors)
        drivers.save_settings(settings, paths.settings_dir(host.name))
        _host_disk(host, fleet)
        give_libraries(host.name, drivers.DRIVER_VERSION)
        for node in host.nodes:
            disk = paths.node_disk(host.name, node.vmid)
            _machine_disk(disk, node.name, fleet)
            _install_libraries(libraries, disk)
            models.lay_out_cache(disk / "var/lib/models/hub", model)
            _api_key(disk / "etc/inference-server/api-key")
            config = _pve_folder(host.name) / "lxc" / f"{node.vmid}.conf"
            config.write_text(container_config(node, settings))


def _api_key(path: Path) -> None:
    """The key that the node's servers want (group_vars/lab/engines.yml): root's own, as on a fleet."""
    path.parent.mkdir(parents=True)
    path.touch(mode=0o600)
    path.write_text(f"sk-lab-{secrets.token_hex(16)}\n", encoding="ascii")


def build_libraries(folder: Path, version: str) -> dict[str, Path]:
    """Compile the stand-in libraries as `version`, one shared object each, named as the real ones are."""
    folder.mkdir(exist_ok=True)
    built = {}
    for source, name in LIBRARIES.items():
        target = folder / f"{name}.{version}"
        command = [
            "gcc",
            "-O1",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            f'-DLAB_DRIVER_VERSION="{version}"',
        ]
        command += ["-Wl,-soname," + f"{name}.1", "-o", str(target), str(paths.HERE / "native" / source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise LabError(f"gcc cannot build {source}; are gcc and libc6-dev installed?\n{result.stderr}")
        built[name] = target
    return built


def give_libraries(host: str, version: str) -> None:
    """Put the driver's user side where the host's boot finds it, as an update of the driver does."""
    folder = paths.settings_dir(host) / "libraries"
    folder.mkdir(exist_ok=True)
    for library in build_libraries(paths.STATE / "libraries", version).values():
        shutil.copy2(library, folder / library.name)


def _install_libraries(libraries: dict[str, Path], disk: Path) -> None:
    folder = disk / LIBRARY_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, library in libraries.items():
        shutil.copy2(library, folder / library.name)
        link = folder / f"{name}.1"
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)


def _machine_disk(disk: Path, name: str, fleet: Fleet) -> None:
    """What a host and a node have in common: name, id, keys, and the names of all others."""
    (disk / "etc/ssh").mkdir(parents=True, exist_ok=True)
    (disk / "root/.ssh").mkdir(parents=True, exist_ok=True)
    (disk / "root").chmod(0o700)
    (disk / "root/.ssh").chmod(0o700)
    (disk / "etc/hostname").write_text(f"{name}\n")
    # An empty machine id means a first boot: systemd would apply its presets and take seconds.
    (disk / "etc/machine-id").write_text(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest() + "\n")
    entries = "".join(f"{machine.address} {machine.name}\n" for machine in fleet.machines)
    (disk / "etc/hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{entries}")
    authorized = disk / "root/.ssh/authorized_keys"
    authorized.write_text(keys.operator_key())
    authorized.chmod(0o600)
    shutil.copytree(paths.HERE / "files/both", disk, dirs_exist_ok=True)
    lab = disk / "usr/local/lib/lab"
    lab.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(paths.PROJECT / "tests/sim/nvidia_smi.py", lab / "nvidia_smi.py")
    for suffix in ("", ".pub"):
        key = disk / f"etc/ssh/ssh_host_ed25519_key{suffix}"
        shutil.copyfile(f"{keys.host_key(name)}{suffix}", key)
        key.chmod(0o600)


def _host_disk(host: Host, fleet: Fleet) -> None:
    disk = paths.host_disk(host.name)
    _machine_disk(disk, host.name, fleet)
    shutil.copytree(paths.HERE / "files/host", disk, dirs_exist_ok=True)
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("pct", "kernel"):
        target = disk / "usr/local/lib/lab" / package
        shutil.copytree(paths.HERE / package, target, ignore=ignore, dirs_exist_ok=True)
    (disk / "etc/lab").mkdir(exist_ok=True)
    (disk / "etc/lab/network").write_text(f"ADDRESS={host.address}\nMAC={host.mac}\n")
    wanted = disk / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    for unit in ("lab-network", "lab-drivers", "pve-cluster", "pve-guests"):
        link = wanted / f"{unit}.service"
        if not link.is_symlink():
            link.symlink_to(f"../{unit}.service")
    for folder in ("srv/base", "srv/disks", "var/lib/lab", "etc/pve", "var/lib/lxc"):
        (disk / folder).mkdir(parents=True, exist_ok=True)
    (_pve_folder(host.name) / "lxc").mkdir(parents=True, exist_ok=True)


def _pve_folder(host: str) -> Path:
    """What the host will see as /etc/pve/nodes/<host>."""
    return paths.host_disk(host) / "var/lib/pve-cluster/tree/nodes" / host


def container_config(node: Node, settings: drivers.Settings) -> str:
    """The story's container file: rules for majors of before the reboot, none for nvidia-uvm's new one."""
    majors = (settings.nvidia_major, drivers.OLD_UVM_MAJOR, 226, 234)
    rules = "".join(f"lxc.cgroup2.devices.allow: c {major}:* rwm\n" for major in majors)
    names = [f"nvidia{gpu.minor}" for gpu in settings.gpus] + ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
    mounts = "".join(
        f"lxc.mount.entry: /dev/{name} dev/{name} none bind,optional,create=file\n" for name in names
    )
    return (
        "#Serving and benchmarks; GPUs by raw rules.\n"
        "arch: amd64\n"
        "cores: 2\n"
        "features: nesting=1\n"
        f"hostname: {node.name}\n"
        "memory: 8192\n"
        f"net0: name=eth0,bridge=vmbr0,hwaddr={node.mac.upper()},ip={node.address}/24,type=veth\n"
        "onboot: 1\n"
        "ostype: debian\n"
        f"rootfs: local-lvm:vm-{node.vmid}-disk-0,size=32G\n"
        "swap: 512\n"
        f"{rules}{mounts}"
    )
