"""What a container's file grants: rules, mounts and devN keys in force, and those that look so but are not.

Pure; runs on the controller. The reading of the file itself is pve_lxc's, which follows Proxmox line by line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible.module_utils.pve_lxc.conf import Config, Entry, parse
from ansible.module_utils.pve_lxc.rules import ALLOW, Grants, Rule, likely_major, parse_rule
from ansible.module_utils.pve_lxc.settings import DeviceValue

V1_ALLOW = "lxc.cgroup.devices.allow"
MIB = 1 << 20
_DEVICE_KEY = re.compile(r"dev\d+")
_ALLOW_LOOSELY = re.compile(r"lxc\s*\.\s*cgroup2?\s*\.\s*devices\s*\.\s*allow\s*[:=]?\s*(.*)", re.IGNORECASE)
_MAJOR_LOOSELY = re.compile(r"\bc\s*([0-9a-f]{1,4})\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class Mount:
    """One lxc.mount.entry: `/dev/nvidia0 dev/nvidia0 none bind,optional,create=file`."""

    source: str
    target: str
    options: frozenset[str]
    line_no: int

    def delivers(self, path: str) -> bool:
        """Whether the host's `path` appears at the same path in the container."""
        inside = "/" + self.target.strip("/")
        source = self.source.rstrip("/")
        return inside == source and (path == source or path.startswith(source + "/"))


@dataclass(frozen=True)
class Place:
    """A rule for a major that is not in force, and where it stands instead."""

    kind: str  # snapshot | pending | ignored | v1 | refused | narrow
    line_no: int
    value: str
    section: str = ""
    why: str = ""


@dataclass(frozen=True)
class Container:
    """One parsed container file, as far as the diagnosis needs it."""

    config: Config
    grants: Grants
    mounts: tuple[Mount, ...]
    devices: dict[str, DeviceValue] = field(default_factory=dict)

    @property
    def keys(self) -> dict[str, str]:
        keys: dict[str, str] = self.config.main.keys
        return keys

    @property
    def idmap(self) -> list[str]:
        return [entry.value for entry in self.config.main.entries if entry.key == "lxc.idmap"]

    @property
    def unprivileged(self) -> bool:
        """Proxmox then includes a file that allows all devices: rules decide nothing."""
        return self.keys.get("unprivileged") == "1" or bool(self.idmap)

    @property
    def nvidia_hook(self) -> Entry | None:
        for entry in self.config.main.entries:
            if entry.key.startswith("lxc.hook.") and "nvidia" in entry.value:
                return entry
        return None

    @property
    def memory_bytes(self) -> int | None:
        value = self.keys.get("memory", "")
        return int(value) * MIB if value.isdigit() else None

    def devices_for(self, path: str) -> list[str]:
        return [key for key, value in self.devices.items() if value.path == path]

    def mounts_for(self, path: str) -> list[Mount]:
        return [mount for mount in self.mounts if mount.delivers(path)]

    def brings(self, path: str) -> bool:
        """Whether the file asks for this node in the container at all."""
        return bool(self.devices_for(path) or self.mounts_for(path) or self.nvidia_hook)

    def named_paths(self) -> set[str]:
        """Every device path that the file in force names."""
        return {value.path for value in self.devices.values()} | {mount.source for mount in self.mounts}

    def allowed_majors(self) -> list[int]:
        """The majors of whole `c N:*` rules in force, in the file's order."""
        return [rule.major for rule, _line in self.whole_rules() if rule.major is not None]

    def whole_rules(self) -> list[tuple[Rule, Entry]]:
        found = []
        for entry in self.config.main.entries:
            rule = parse_rule(entry.value) if entry.key == ALLOW else None
            if rule is not None and rule.type == "c" and rule.minor is None and rule in self.grants.allowed:
                found.append((rule, entry))
        return found

    def refused_rules(self) -> list[Entry]:
        """Lines with which LXC refuses to start the container."""
        return [
            entry
            for entry in self.config.main.entries
            if entry.key == ALLOW and parse_rule(entry.value) is None
        ]

    def places_of(self, major: int) -> list[Place]:
        """Where a rule for this major stands without being in force, the most telling first."""
        found = []
        for entry in self.config.main.entries:
            if entry.key == ALLOW:
                rule = parse_rule(entry.value)
                if rule is None and meant_major(entry.value) == major:
                    found.append(Place("refused", entry.line_no, entry.value))
                elif rule is not None and rule.major == major and not rule.opens:
                    found.append(Place("narrow", entry.line_no, entry.value))
            elif entry.key == V1_ALLOW and meant_major(entry.value) == major:
                found.append(Place("v1", entry.line_no, entry.value))
        for line in self.config.ignored:
            value = _ALLOW_LOOSELY.search(line.text)
            if value and meant_major(value.group(1)) == major:
                found.append(Place("ignored", line.line_no, line.text, why=line.why))
        sections = [("pending", self.config.pending)]
        sections += [("snapshot", section) for section in self.config.snapshots.values()]
        for kind, section in sections:
            found += [
                Place(kind, entry.line_no, entry.value, section=section.name)
                for entry in section.entries
                if entry.key == ALLOW and meant_major(entry.value) == major
            ]
        return found


def read_container(text: str) -> Container:
    config = parse(text)
    mounts = []
    for entry in config.main.entries:
        words = entry.value.split()
        if entry.key == "lxc.mount.entry" and len(words) >= 2:  # noqa: PLR2004 - source and target
            options = frozenset(words[3].split(",")) if len(words) > 3 else frozenset()  # noqa: PLR2004
            mounts.append(Mount(words[0], words[1], options, entry.line_no))
    devices = {
        key: DeviceValue(value) for key, value in config.main.keys.items() if _DEVICE_KEY.fullmatch(key)
    }
    return Container(config, Grants(config.main.entries), tuple(mounts), devices)


def meant_major(value: str) -> int | None:
    """The major that someone meant, also by hex digits as `stat -c %t` prints them."""
    decimal = likely_major(value)
    if decimal is not None:
        return int(decimal)
    loose = _MAJOR_LOOSELY.search(value)
    if not loose:
        return None
    digits = loose.group(1)
    return int(digits) if digits.isdigit() else int(digits, 16)
