"""Where the lab keeps things. All of it but the cache lives in the room's own /run and dies with it."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

STATE = Path("/run/lab")
ROOM_MARK = STATE / "room"
FLEET_FILE = STATE / "fleet.json"
MACHINES = STATE / "machines"
SSH_DIR = STATE / "ssh"
SSH_CONFIG = SSH_DIR / "config"


def cache_dir() -> Path:
    return Path(os.environ.get("LAB_CACHE") or "/var/cache/recover-and-bench").absolute()


def machine_dir(host: str) -> Path:
    return MACHINES / host


def host_disk(host: str) -> Path:
    """The upper directory of the host's root overlay."""
    return machine_dir(host) / "delta"


def settings_dir(host: str) -> Path:
    """Mounted at /var/lib/lab in the host: what the "hardware" will do at the next boot."""
    return machine_dir(host) / "settings"


def node_disk(host: str, vmid: int) -> Path:
    """The upper directory of the node's root overlay; inside the host /srv/disks/vm-<vmid>-disk-0/delta."""
    return machine_dir(host) / "disks" / f"vm-{vmid}-disk-0" / "delta"
