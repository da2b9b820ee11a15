"""Device rules as LXC reads them, and the majors that the running kernel gave to NVIDIA's drivers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import PveLxcError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from .conf import Entry

ALLOW = "lxc.cgroup2.devices.allow"
DENY = "lxc.cgroup2.devices.deny"

# The names NVIDIA's kernel modules register, matched exactly: `nvidia-fs` or `nvidiafb` are others' drivers.
# 195 answers to `nvidia-frontend` before driver 545, then to `nvidia`, `nvidiactl` and `nvidia-modeset`.
NVIDIA_DRIVERS = (
    "nvidia",
    "nvidia-frontend",
    "nvidiactl",
    "nvidia-modeset",
    "nvidia-uvm",
    "nvidia-caps",
    "nvidia-caps-imex-channels",
    "nvidia-nvlink",
    "nvidia-nvswitch",
)
CORE_DRIVERS = ("nvidia", "nvidia-frontend")
UVM_DRIVER = "nvidia-uvm"
DRM_DRIVER = "drm"

# Where the kernel takes a dynamic major from (fs/char_dev.c): the only numbers that can have been NVIDIA's
# dynamic ones. Any other number was assigned to one driver for good, whether that is loaded now or not.
_DYNAMIC = (range(234, 255), range(384, 512))

_RULE = re.compile(r"(?P<type>[abc])\s(?P<major>\*|\d+):(?P<minor>\*|\d+)\s(?P<access>.*)", re.ASCII)
_ACCESS = re.compile(r"([rwm]{3}.*|[rwm]{0,2})", re.ASCII | re.DOTALL)
_LOOSE = re.compile(
    r"\s*(?P<type>[abc])\s+(?:0x)?(?P<major>\*|[0-9a-f]+)\s*:\s*(?P<minor>\*|\d+)\s+(?P<access>[rwm]{1,3})(?![a-z])",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True)
class Rule:
    """`None` for a major or minor is `*`."""

    type: str
    major: int | None
    minor: int | None
    access: str

    @property
    def opens(self) -> bool:
        """Reading and writing; `m` is for mknod, which no container needs for a node that is mounted."""
        return "r" in self.access and "w" in self.access

    def covers(self, major: int, minor: int | None) -> bool:
        return (
            self.type in "ac" and self.major in (None, major) and (self.minor is None or self.minor == minor)
        )


EVERYTHING = Rule("a", None, None, "rwm")


def parse_rule(value: str) -> Rule | None:
    """A rule as LXC's own parser takes it; None for one with which LXC refuses to start the container."""
    if value == "a":
        return EVERYTHING
    match = _RULE.fullmatch(value)
    if not match or not _ACCESS.fullmatch(match["access"]):
        return None
    major, minor = (None if match[part] == "*" else int(match[part]) for part in ("major", "minor"))
    return Rule(match["type"], major, minor, match["access"][:3])


def likely_major(value: str) -> int | None:
    """The major that someone meant in a rule that LXC refuses."""
    match = _LOOSE.match(value)
    return int(match["major"]) if match and match["major"].isdigit() else None


def mended_rule(value: str, majors: Iterable[int]) -> str:
    """The rule that was meant where LXC refuses what is written; "" where that can't be told.

    `stat` prints majors in hexadecimal, so such a number is believed when it is one of `majors`.
    """
    match = _LOOSE.match(value)
    if not match:
        return ""
    major = match["major"]
    if major != "*" and not major.isdigit():
        if int(major, 16) not in majors:
            return ""
        major = str(int(major, 16))
    return f"{match['type']} {major}:{match['minor']} {match['access']}"


def write_rule(major: int) -> str:
    return f"c {major}:* rwm"


class Grants:
    """What a container's raw entries allow, taken in their order as LXC takes them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.everything = False
        self.allowed: list[Rule] = []
        self.denied: list[tuple[Rule, Entry]] = []
        for entry in entries:
            rule = parse_rule(entry.value) if entry.key in (ALLOW, DENY) else None
            if rule:
                self._take(rule, entry)

    def _take(self, rule: Rule, entry: Entry) -> None:
        allow = entry.key == ALLOW
        if rule is EVERYTHING:
            self.everything, self.allowed, self.denied = allow, [], []
        elif allow:
            self.allowed.append(rule)
            self.denied = [(other, line) for other, line in self.denied if not _same(other, rule)]
        else:
            self.denied.append((rule, entry))
            self.allowed = [other for other in self.allowed if not _same(other, rule)]

    def open(self, major: int, minor: int | None) -> bool:
        """Whether the node can be opened for reading and writing; minor None asks for all of them."""
        if self.everything:
            return self.denied_by(major) is None
        return any(rule.opens and rule.covers(major, minor) for rule in self.allowed)

    def denied_by(self, major: int) -> Entry | None:
        """The line that denies this major on purpose, if one does."""
        for rule, entry in self.denied:
            if rule.type in "ac" and rule.major in (None, major):
                return entry
        return None

    def names(self, major: int) -> bool:
        return any(rule.major == major for rule in self.allowed)


def _same(left: Rule, right: Rule) -> bool:
    return (left.type, left.major, left.minor) == (right.type, right.major, right.minor)


def parse_proc_devices(text: str) -> dict[int, list[str]]:
    """Character majors with the names registered for them."""
    majors: dict[int, list[str]] = {}
    section = ""
    for line in text.splitlines():
        if line.endswith("devices:"):
            section = line.split()[0]
            continue
        match = re.fullmatch(r"\s*(\d+) (\S+)\s*", line, re.ASCII)
        if match and section == "Character":
            majors.setdefault(int(match.group(1)), []).append(match.group(2))
    return majors


def read_proc_devices(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as exc:
        raise PveLxcError(f"{path} can't be read: {exc.strerror}") from exc


def nvidia_majors(devices: Mapping[int, Iterable[str]]) -> dict[int, list[str]]:
    """The majors of NVIDIA's drivers, in the order of NVIDIA_DRIVERS, each with its NVIDIA names."""
    found = {major: [name for name in NVIDIA_DRIVERS if name in names] for major, names in devices.items()}
    found = {major: names for major, names in found.items() if names}
    return dict(sorted(found.items(), key=lambda item: NVIDIA_DRIVERS.index(item[1][0])))


def is_dynamic(major: int) -> bool:
    return any(major in numbers for numbers in _DYNAMIC)
