"""What the verbs do: build and boot the VM with its one node, reboot it, stop it."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path

from tests.lab import disks, drivers, keys, machines, paths, requirements
from tests.lab import fleet as names
from tests.lab.console import complain, say
from tests.lab.errors import LabError
from tests.lab.vm import machine, parts

FILES = Path(__file__).resolve().parent / "files"
# As in the story: the numbers that NVIDIA's drivers really have.
NVIDIA_MAJOR, CTL_MINOR, UVM_MAJOR = 195, 255, 511
DISK_MIB = 4096
# What the kernel hands out to drivers that ask for no number of their own.
DYNAMIC_MAJORS = range(384, 512)


def fetch() -> int:
    requirements.require_root()
    require_programs()
    say(str(parts.fetch().folder))
    return 0


def require_programs() -> None:
    needed = {machine.QEMU: "qemu-system-x86", "make": "make", "mke2fs": "e2fsprogs", "gcc": "gcc libc6-dev"}
    missing = sorted(package for program, package in needed.items() if not shutil.which(program))
    if missing:
        raise LabError(f"packages are missing: apt-get install --no-install-recommends {' '.join(missing)}")


def up() -> int:
    """Boot the VM in the state of the story: its nvidia-uvm is 511, the container's file still says 509."""
    requirements.require_room()
    require_programs()
    if names.load_fleet(paths.FLEET_FILE):
        raise LabError("a lab is up in this room; `down` stops it")
    built = parts.present()
    fleet = names.make_fleet()
    (host,) = fleet.hosts
    started = time.monotonic()
    disk = _build(fleet, built)
    ready = time.monotonic()
    complain(f"disks made in {ready - started:.1f} s; booting (a minute or two without KVM)")
    machine.power_on(host, built, disk)
    names.save_fleet(fleet, paths.FLEET_FILE)
    machine.wait_until_up(host)
    say(f"lab: booted {host.name} with {host.nodes[0].name} ({time.monotonic() - ready:.1f} s)")
    return 0


def _build(fleet: names.Fleet, built: parts.Parts) -> Path:
    (host,) = fleet.hosts
    folder = paths.machine_dir(host.name)
    shutil.rmtree(paths.MACHINES, ignore_errors=True)
    (folder / "disks").mkdir(parents=True)
    keys.make_keys(fleet)
    # Without KVM sshd alone takes seconds to answer.
    config = paths.SSH_CONFIG.read_text()
    paths.SSH_CONFIG.write_text(config.replace("ConnectTimeout 5", "ConnectTimeout 30"))
    uvm = drivers.Donor(UVM_MAJOR, 0, 1, "nvidia-uvm")
    disks.make_disks(fleet, (uvm,), names.GPUS_PER_HOST, "tiny")
    settings = drivers.Settings(
        uvm,
        drivers.make_gpus(host.number, names.GPUS_PER_HOST),
        nvidia_major=NVIDIA_MAJOR,
        ctl_minor=CTL_MINOR,
    )
    drivers.save_settings(settings, paths.settings_dir(host.name))
    containers = paths.host_disk(host.name) / "var/lib/pve-cluster/tree/nodes" / host.name / "lxc"
    for node in host.nodes:
        (containers / f"{node.vmid}.conf").write_text(disks.container_config(node, settings))
    for extra in (FILES, built.host_files):
        _lay_over(extra, paths.host_disk(host.name))
    machines.make_bridge()
    disk = paths.STATE / "state.img"
    parts.make_disk(folder, disk, DISK_MIB)
    return disk


def _lay_over(source: Path, target: Path) -> None:
    """Copy a tree over another, also a link over a file."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir() and not path.is_symlink():
            place.mkdir(parents=True, exist_ok=True)
        elif "__pycache__" not in path.parts:
            place.unlink(missing_ok=True)
            shutil.copy2(path, place, follow_symlinks=False)


def reboot(uvm_major: int | None) -> int:
    """Reboot the host as its own init does; nvidia-uvm may get another major."""
    requirements.require_lab()
    (host,) = names.make_fleet().hosts
    if uvm_major is not None:
        if uvm_major not in DYNAMIC_MAJORS:
            first, last = DYNAMIC_MAJORS[0], DYNAMIC_MAJORS[-1]
            raise LabError(f"--uvm-major {uvm_major}: the kernel hands out {first} to {last}")
        folder = paths.settings_dir(host.name)
        settings = drivers.load_settings(folder)
        settings = replace(settings, uvm=replace(settings.uvm, major=uvm_major))
        drivers.save_settings(settings, folder)
        text = json.dumps(asdict(settings), indent=1) + "\n"
        machines.ssh_checked(host.name, "cat > /var/lib/lab/drivers.json && sync", text=text)
    started = time.monotonic()
    machine.reboot(host)
    say(f"lab: {host.name} rebooted ({time.monotonic() - started:.1f} s)")
    return 0


def down() -> int:
    requirements.require_room()
    for host in names.make_fleet().hosts:
        machine.power_off(host)
    paths.FLEET_FILE.unlink(missing_ok=True)
    shutil.rmtree(paths.MACHINES, ignore_errors=True)
    (paths.STATE / "state.img").unlink(missing_ok=True)
    return 0
