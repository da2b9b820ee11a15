"""What is known when a container's file is planned, and the plan that comes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .edit import Edit
from .rules import nvidia_majors
from .settings import DeviceValue

if TYPE_CHECKING:
    from .conf import Config, Entry

MOUNT = "lxc.mount.entry"
DEVICE_KEY = re.compile(r"dev\d+", re.ASCII)


@dataclass(frozen=True)
class Node:
    """A device node of the host that the container should have."""

    path: str
    driver: str  # its name in /proc/devices
    minor: int
    exists: bool = True


@dataclass(frozen=True)
class Mount:
    """A `lxc.mount.entry` in fstab form; the target is relative to the container's root."""

    entry: Entry
    source: str
    target: str

    @classmethod
    def of(cls, entry: Entry) -> Mount | None:
        fields = entry.value.split() if entry.key == MOUNT else []
        if len(fields) < 2:  # noqa: PLR2004 - source and target
            return None
        return cls(entry, fields[0].rstrip("/"), "/" + fields[1].strip("/"))

    def delivers(self, path: str) -> bool:
        """Whether the node stands at its own path inside: mounted itself, or below a mounted folder."""
        inside = f"{path}/".startswith(f"{self.source}/")
        return inside and self.target + path[len(self.source) :] == path


@dataclass
class Plan:
    """`edit` for the file, `records` to keep, and what an operator should hear."""

    mode: str
    reason: str
    records: dict[str, list[str]]
    edit: Edit = field(default_factory=Edit)
    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    live_rules: list[str] = field(default_factory=list)  # all it must be allowed, in its file or not

    def drop(self, entry: Entry, what: str) -> None:
        self.edit.replace_entries.pop(entry.line_no, None)
        self.edit.drop_entries.append(entry.line_no)
        self.changes.append(f"drop line {entry.line_no}: {what}")

    def drop_key(self, key: str, why: str) -> None:
        self.edit.drop_keys.append(key)
        self.changes.append(f"drop {key}: {why}")

    def set_key(self, key: str, value: str, what: str) -> None:
        self.edit.set_keys[key] = value
        self.changes.append(what)

    def add(self, key: str, value: str, what: str) -> None:
        self.edit.add_entries.append((key, value))
        self.changes.append(what)

    def replace(self, entry: Entry, value: str, what: str) -> None:
        self.edit.replace_entries[entry.line_no] = value
        self.changes.append(what)


@dataclass
class Situation:
    """One container's file, the nodes it should have, and the majors of the running kernel."""

    config: Config
    devices: dict[int, list[str]]
    nodes: list[Node]
    extra_majors: list[int]
    former_majors: set[int]
    records: dict[str, list[str]]

    def __post_init__(self) -> None:
        self.nvidia = nvidia_majors(self.devices)
        self.entries = self.config.main.entries
        self.mounts = [mount for mount in map(Mount.of, self.entries) if mount]
        keys = self.config.main.keys.items()
        self.dev_keys = {key: DeviceValue(value) for key, value in keys if DEVICE_KEY.fullmatch(key)}
        self.hook = any(e.key == "lxc.hook.mount" and "nvidia" in e.value for e in self.entries)

    @property
    def is_unprivileged(self) -> bool:
        """Proxmox then includes a file that allows every device, so rules have no effect."""
        idmap = any(entry.key == "lxc.idmap" for entry in self.entries)
        return idmap or self.config.main.keys.get("unprivileged") == "1"

    def dev_keys_of(self, node: Node) -> list[str]:
        return [key for key, value in self.dev_keys.items() if value.path == node.path]

    def mount_of(self, node: Node) -> Mount | None:
        return next((mount for mount in self.mounts if mount.delivers(node.path)), None)

    def names(self, major: int) -> str:
        return ", ".join(self.nvidia.get(major) or self.devices.get(major) or ["as asked for"])
