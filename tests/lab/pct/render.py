"""The LXC config of a container, rendered from its Proxmox file anew at each start."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .conf import device_options
from .errors import PctError

if TYPE_CHECKING:
    from .conf import Section

BASE = "/srv/base"
DISKS = "/srv/disks"
_NUMBER = re.compile(r"\d+$")


@dataclass(frozen=True)
class Device:
    """A `devN` entry, resolved on the host: its numbers of this start."""

    path: str
    major: int
    minor: int
    mode: str
    deny_write: bool = False

    def rule(self) -> str:
        return f"c {self.major}:{self.minor} {'r' if self.deny_write else 'rw'}"

    def line(self) -> str:
        """For the hook that makes the node in the starting container (hooks/lab-devices)."""
        return f"{self.path} {self.major} {self.minor} {self.mode}\n"


def devices(section: Section) -> list[Device]:
    """Resolve the `devN` entries; Proxmox refuses the start when one of them does not exist."""
    found = []
    for key in sorted(section.keys, key=_order):
        if not re.fullmatch(r"dev\d+", key):
            continue
        options = device_options(section.keys[key])
        path = options["path"]
        try:
            status = Path(path).stat()
        except FileNotFoundError:
            raise PctError(f"Device {path} does not exist", 2) from None
        if not stat.S_ISCHR(status.st_mode) and not stat.S_ISBLK(status.st_mode):
            raise PctError(f"Path {path} is not a device file", 255)
        found.append(
            Device(
                path,
                os.major(status.st_rdev),
                os.minor(status.st_rdev),
                options.get("mode", "0660"),
                options.get("deny-write", "0") == "1",
            )
        )
    return found


def render(vmid: int, section: Section, controllers: set[str]) -> str:
    """The whole text of /var/lib/lxc/<vmid>/config."""
    hostname = section.keys.get("hostname", f"CT{vmid}")
    lines = [
        "lxc.cgroup.relative = 0",
        f"lxc.cgroup.dir.monitor = lxc.monitor/{vmid}",
        f"lxc.cgroup.dir.container = lxc/{vmid}",
        "lxc.cgroup.dir.container.inner = ns",
        "lxc.arch = amd64",
        "lxc.include = /usr/share/lxc/config/common.conf",
        "lxc.apparmor.profile = unconfined",
        "lxc.monitor.unshare = 1",
        f"lxc.tty.max = {section.keys.get('tty', '2')}",
        "lxc.environment = TERM=linux",
        f"lxc.uts.name = {hostname}",
        "lxc.mount.auto =",
        "lxc.mount.auto = proc:mixed sys:mixed cgroup:mixed",
        f"lxc.rootfs.path = {_volume(section.keys['rootfs'])}",
    ]
    lines += _limits(section, controllers)
    for key in sorted(section.keys, key=_order):
        if re.fullmatch(r"net\d+", key):
            lines += _network(vmid, int(key[3:]), section.keys[key])
        elif re.fullmatch(r"mp\d+", key):
            lines += _mount_point(section.keys[key])
    if section.keys.get("unprivileged") == "1":
        # Proxmox includes userns.conf, which allows all devices. Its uid mapping is not modelled.
        lines += ["lxc.cgroup2.devices.allow = a"]
    else:
        lines += [f"lxc.cgroup2.devices.allow = {device.rule()}" for device in devices(section)]
    if any(re.fullmatch(r"dev\d+", key) for key in section.keys):
        lines.append("lxc.hook.autodev = /usr/share/lxc/hooks/lab-devices")
    # The kernel of a real host shows these in every container.
    lines.append("lxc.mount.entry = /proc/devices proc/devices none bind,optional 0 0")
    lines.append("lxc.mount.entry = /proc/driver proc/driver none rbind,optional 0 0")
    lines += [f"{key} = {value}" for key, value in section.lxc]
    return "".join(f"{line}\n" for line in lines)


def _order(key: str) -> tuple[str, int]:
    match = _NUMBER.search(key)
    return (key[: match.start()], int(match[0])) if match else (key, -1)


def _volume(value: str) -> str:
    """A storage volume is an overlay over the machines' common tree; a plain path is taken as it stands."""
    volume = value.split(",", 1)[0]
    if volume.startswith("/"):
        return volume
    name = volume.partition(":")[2]
    return f"overlay:{BASE}:{DISKS}/{name}/delta"


def _limits(section: Section, controllers: set[str]) -> list[str]:
    lines = []
    if "memory" in controllers and "memory" in section.keys:
        lines.append(f"lxc.cgroup2.memory.max = {int(section.keys['memory']) * 2**20}")
    if "cpu" in controllers and "cpulimit" in section.keys:
        lines.append(f"lxc.cgroup2.cpu.max = {int(float(section.keys['cpulimit']) * 100000)} 100000")
    return lines


def _options(value: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in value.split(","))


def _network(vmid: int, number: int, value: str) -> list[str]:
    options = _options(value)
    lines = [
        f"lxc.net.{number}.type = veth",
        f"lxc.net.{number}.veth.pair = veth{vmid}i{number}",
        f"lxc.net.{number}.name = {options['name']}",
        f"lxc.net.{number}.link = {options['bridge']}",
        f"lxc.net.{number}.flags = up",
    ]
    if "hwaddr" in options:
        lines.append(f"lxc.net.{number}.hwaddr = {options['hwaddr']}")
    # The real one writes the address into the guest's own network configuration.
    if "/" in options.get("ip", ""):
        lines.append(f"lxc.net.{number}.ipv4.address = {options['ip']}")
    return lines


def _mount_point(value: str) -> list[str]:
    source, *rest = value.split(",")
    options = _options(",".join(rest))
    if not source.startswith("/"):
        source = f"{DISKS}/{source.partition(':')[2]}"
    access = "bind,ro" if options.get("ro") == "1" else "bind"
    return [f"lxc.mount.entry = {source} {options['mp'].lstrip('/')} none {access},create=dir 0 0"]
