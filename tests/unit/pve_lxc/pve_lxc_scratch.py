"""A scratch Proxmox VE host: folders, /proc/devices, and a stand-in `pct` that keeps a container's state."""

import importlib.util
import os
import stat
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/pve_lxc"

CONF = """\
#GPUs by raw rules.
arch: amd64
hostname: ct200
rootfs: local-zfs:subvol-200-disk-0,size=200G
lxc.cgroup2.devices.allow: c 195:* rwm
lxc.cgroup2.devices.allow: c 509:* rwm
lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file
lxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file
lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file
lxc.mount.entry: /dev/nvidia-uvm-tools dev/nvidia-uvm-tools none bind,optional,create=file

[before-driver]
arch: amd64
lxc.cgroup2.devices.allow: c 511:* rwm
snaptime: 1764460800
"""
REPAIRED = CONF.replace("c 509:* rwm", "c 511:* rwm", 1)
DEVICES = """\
Character devices:
  1 mem
195 nvidia
195 nvidiactl
226 drm
511 nvidia-uvm

Block devices:
  8 sd
"""

# The same stand-in as in the molecule scenario.
PCT = (ROOT / "tests/molecule/pve_lxc/bin/pct").read_text()


@dataclass
class Scratch:
    """Everything of a host that the modules touch, below one folder."""

    root: Path

    @property
    def conf(self):
        return self.root / "lxc/200.conf"

    @property
    def places(self):
        return {
            "conf_dir": str(self.root / "lxc"),
            "lock_dir": str(self.root / "lock"),
            "proc_devices": str(self.root / "devices"),
            "driver_dir": str(self.root / "driver"),
            "dev_dir": str(self.root / "dev"),
            "backup_dir": str(self.root / "backups"),
            "records": str(self.root / "majors.json"),
        }

    def make_node(self, name, major, minor, mode=0o666):
        path = self.root / "dev" / name
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
        path.chmod(mode)
        return path

    def snapshot(self):
        """All there is, to compare before and after."""
        return {
            str(path.relative_to(self.root)): (path.lstat().st_mode, path.lstat().st_rdev, _content(path))
            for path in sorted(self.root.rglob("*"))
            if path.name not in ("pct.log", "bin")
        }

    def calls(self):
        log = self.root / "pct.log"
        return log.read_text().splitlines() if log.exists() else []

    def put(self, name, text):
        (self.root / name).write_text(text)


def _content(path):
    return path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b""


def load(path):
    """A plugin or a module of the role, which are files and no packages."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
