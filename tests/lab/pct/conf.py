"""Container files as Proxmox VE reads and rewrites them (pve-container 6.1: `parse_pct_config`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote_from_bytes, unquote_to_bytes

_SECTION = re.compile(r"^\[([a-z][a-z0-9_\-]+)\]\s*$", re.IGNORECASE)
_PENDING = re.compile(r"^\[pve:pending\]\s*$", re.IGNORECASE)
_RAW = re.compile(r"^(lxc\.[a-z0-9_\-.]+)(:|\s*=)\s*(.*?)\s*$")
_DESCRIPTION = re.compile(r"^description:\s*(.*\S)\s*$")
_PLAIN = re.compile(r"^([a-z][a-z_]*\d*):\s*(.+?)\s*$")
_DEV_MODE = re.compile(r"^0[0-7]{3}$")

_KNOWN = frozenset(
    [
        "arch",
        "cmode",
        "console",
        "cores",
        "cpulimit",
        "cpuunits",
        "debug",
        "features",
        "force-rw-root",
        "hookscript",
        "hostname",
        "lock",
        "memory",
        "nameserver",
        "onboot",
        "ostype",
        "parent",
        "protection",
        "rootfs",
        "searchdomain",
        "snaptime",
        "snapstate",
        "startup",
        "swap",
        "tags",
        "template",
        "timezone",
        "tty",
        "unprivileged",
        "entrypoint",
        "env",
    ]
)
_NUMBERED = re.compile(r"^(dev|mp|net|unused)\d+$")
_GENERATED = {
    "lxc.rootfs.path": "lxc.rootfs.path is auto generated from rootfs",
    "lxc.rootfs": "lxc.rootfs is auto generated from rootfs",
    "lxc.uts.name": "lxc.uts.name is auto generated from hostname",
    "lxc.utsname": "lxc.utsname is auto generated from hostname",
}


@dataclass
class Section:
    keys: dict[str, str] = field(default_factory=dict)
    lxc: list[tuple[str, str]] = field(default_factory=list)
    description: str = ""


@dataclass
class Config:
    main: Section = field(default_factory=Section)
    pending: Section = field(default_factory=Section)
    snapshots: dict[str, Section] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def parse(text: str, vmid: int) -> Config:
    """Read a file; most lines that earn a warning are not in the result, so gone after the next write."""
    config = Config()
    section = config.main
    for line in text.split("\n"):
        if not line.strip():
            continue
        if _PENDING.match(line):
            section = config.pending = Section()
        elif match := _SECTION.match(line):
            section = config.snapshots[match[1]] = Section()
        elif line.startswith("#"):
            section.description += _decode(line[1:]) + "\n"
        elif match := _RAW.match(line):
            _take_raw(config, section, vmid, match[1], match[3])
        elif match := _DESCRIPTION.match(line):
            section.description += _decode(match[1])
        elif match := _PLAIN.match(line):
            if problem := _problem(match[1], match[2]):
                config.warnings.append(f"vm {vmid} - unable to parse value of '{match[1]}' - {problem}")
            section.keys[match[1]] = match[2]
        else:
            config.warnings.append(f"vm {vmid} - unable to parse config: {line}")
    return config


def _take_raw(config: Config, section: Section, vmid: int, key: str, value: str) -> None:
    if reason := _GENERATED.get(key):
        config.warnings.append(f"vm {vmid} - {key}: {reason}")
        return
    if key.startswith("lxc.cgroup."):
        config.warnings.append(f"vm {vmid} - {key} is deprecated, this will be a hard error in the future!")
    section.lxc.append((key, value))


def known_key(key: str) -> bool:
    return key in _KNOWN or _NUMBERED.match(key) is not None


def _problem(key: str, value: str) -> str | None:
    if not known_key(key):
        return f"unknown setting '{key}'"
    if key.startswith("dev"):
        mode = device_options(value).get("mode")
        if mode is not None and not _DEV_MODE.match(mode):
            return "format error\nmode: value does not match the regex pattern"
    return None


def device_options(value: str) -> dict[str, str]:
    """`/dev/nvidia0,mode=0666` or `path=/dev/nvidia0,…` as options."""
    first, *rest = value.split(",")
    options = dict(part.partition("=")[::2] for part in rest)
    options["path"] = first.removeprefix("path=")
    return options


def write(config: Config) -> str:
    """The file as Proxmox writes it: description, sorted keys, raw entries; then pending, then snapshots."""
    text = _write_section(config.main)
    if config.pending.keys or config.pending.lxc:
        text += "\n[pve:pending]\n" + _write_section(config.pending)
    for name in sorted(config.snapshots):
        text += f"\n[{name}]\n" + _write_section(config.snapshots[name])
    return text


def _write_section(section: Section) -> str:
    lines = [f"#{_encode(line)}" for line in section.description.removesuffix("\n").split("\n")]
    lines = lines if section.description else []
    lines += [f"{key}: {section.keys[key]}" for key in sorted(section.keys)]
    lines += [f"{key}: {value}" for key, value in section.lxc]
    return "".join(f"{line}\n" for line in lines)


def _decode(text: str) -> str:
    return unquote_to_bytes(text.encode()).decode("utf-8", "replace")


def _encode(text: str) -> str:
    """Percent-encode what Proxmox does: control characters, `%` and all that is not ASCII."""
    return quote_from_bytes(text.encode(), safe="".join(map(chr, range(32, 127))).replace("%", ""))
