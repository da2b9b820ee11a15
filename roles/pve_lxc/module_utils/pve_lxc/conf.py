"""Read a Proxmox VE container file exactly as Proxmox reads it, and keep every byte of it.

`parse(text)` follows `parse_pct_config` of pve-container 6.1 line by line, its surprises included: comments
belong to the description wherever they stand, a line it cannot read is dropped at its next write, a section
opened twice starts afresh. `as_written_by_pve(config)` is the whole file after Proxmox's next own write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha1
from urllib.parse import unquote_to_bytes

from .settings import judge_raw_key, read_value

PENDING = "pve:pending"

_BLANK = re.compile(r"\s*", re.ASCII)
_PENDING = re.compile(r"\[pve:pending\]\s*", re.ASCII | re.IGNORECASE)
_SNAPSHOT = re.compile(r"\[([a-z][a-z0-9_\-]+)\]\s*", re.ASCII | re.IGNORECASE)
_RAW_ENTRY = re.compile(r"(lxc\.[a-z0-9_\-.]+)(:|\s*=)\s*(.*?)\s*", re.ASCII)
_DESCRIPTION = re.compile(r"description:\s*(.*\S)\s*", re.ASCII)
_SNAPSTATE = re.compile(r".*?snapstate:\s*(prepare|delete)\s*", re.ASCII)
_DELETE = re.compile(r"delete:\s*(.*\S)\s*", re.ASCII)
_PLAIN_KEY = re.compile(r"([a-z][a-z_]*\d*):\s*(.+?)\s*", re.ASCII)
# Names that Proxmox's writer keeps for itself, so a plain key of that name is not written.
_NOT_WRITTEN = frozenset(("digest", "description", "pending", "snapshots", "snapname", "lxc"))


@dataclass(frozen=True)
class Entry:
    """A raw `lxc.*` entry that Proxmox reads."""

    key: str
    value: str
    line_no: int


@dataclass(frozen=True)
class Ignored:
    """A line that Proxmox warns about. `why` is its own warning, without the leading `vm N - `."""

    line_no: int
    text: str
    why: str


@dataclass
class Section:
    """The current configuration, the pending changes, or one snapshot."""

    name: str
    keys: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    description: str = ""
    key_lines: dict[str, list[int]] = field(default_factory=dict)  # the last line of a key counts


@dataclass
class Config:
    """What Proxmox reads from a container's file. Line numbers start at 1."""

    text: str
    main: Section
    pending: Section
    snapshots: dict[str, Section]
    ignored: list[Ignored]  # not read; deleted by Proxmox's next write
    warned: list[Ignored]  # read and kept, with a warning
    main_end: int  # the number of lines before the first section header

    @property
    def digest(self) -> str:
        """Proxmox's own digest: SHA-1 of the raw file."""
        return sha1(encode(self.text)).hexdigest()  # noqa: S324 - Proxmox's choice, not a secret


def decode(raw: bytes) -> str:
    """Text in which every byte of the file survives, whatever its encoding."""
    return raw.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def split_lines(text: str) -> list[str]:
    """Lines with their ends. Only a line feed ends a line for Proxmox; a carriage return is a blank."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def parse(text: str) -> Config:
    config = Config(text, Section(""), Section(PENDING), {}, [], [], 0)
    reader = _Reader(config)
    lines = split_lines(text)
    config.main_end = len(lines)
    for number, raw in enumerate(lines, 1):
        if reader.read(number, raw.rstrip("\n")) and config.main_end == len(lines):
            config.main_end = number - 1
    reader.close_section()
    config.main.keys.pop("snapstate", None)
    return config


class _Reader:
    """One pass over the lines; `read` says whether the line opened a section."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.section = config.main
        self.description = ""

    def close_section(self) -> None:
        if self.description not in ("", "0"):  # Perl's idea of false
            self.section.description = self.description
        self.description = ""

    def open_section(self, section: Section) -> None:
        self.close_section()
        self.section = section

    def read(self, number: int, line: str) -> bool:
        if _BLANK.fullmatch(line):
            return False
        if _PENDING.fullmatch(line):
            self.open_section(Section(PENDING))
            self.config.pending = self.section
            return True
        header = _SNAPSHOT.fullmatch(line)
        if header:
            self.open_section(Section(header.group(1)))
            self.config.snapshots[header.group(1)] = self.section
            return True
        if line.startswith("#"):
            self.description += _decode_text(line[1:]) + "\n"
            return False
        self._read_setting(number, line)
        return False

    def _read_setting(self, number: int, line: str) -> None:
        raw = _RAW_ENTRY.fullmatch(line)
        if raw:
            self._read_raw_entry(number, line, raw.group(1), raw.group(3))
            return
        text = _DESCRIPTION.fullmatch(line)
        if text:
            self.description += _decode_text(text.group(1))
            return
        state = _SNAPSTATE.fullmatch(line)
        if state:
            self._set("snapstate", state.group(1), number)
            return
        delete = _DELETE.fullmatch(line)
        if delete:
            if self.section.name == PENDING:
                self._set("delete", delete.group(1), number)
            else:
                self._ignore(number, line, "property 'delete' is only allowed in [pve:pending]")
            return
        plain = _PLAIN_KEY.fullmatch(line)
        if not plain:
            self._ignore(number, line, f"unable to parse config: {line}")
            return
        value, complaint = read_value(plain.group(1), plain.group(2))
        if complaint:
            why = f"unable to parse value of '{plain.group(1)}' - {complaint}"
            self.config.warned.append(Ignored(number, line, why))
        self._set(plain.group(1), value, number)

    def _read_raw_entry(self, number: int, line: str, key: str, value: str) -> None:
        read, warning = judge_raw_key(key)
        if not read:
            self._ignore(number, line, warning or f"unable to parse config: {line}")
            return
        if warning:
            self.config.warned.append(Ignored(number, line, warning))
        self.section.entries.append(Entry(key, value, number))

    def _set(self, key: str, value: str, number: int) -> None:
        if key == "description":
            self.section.description = value
            return
        self.section.keys[key] = value
        self.section.key_lines.setdefault(key, []).append(number)

    def _ignore(self, number: int, line: str, why: str) -> None:
        self.config.ignored.append(Ignored(number, line, why))


def as_written_by_pve(config: Config) -> str:
    """The whole file as Proxmox rewrites it on `pct set` or a save in its web interface.

    One thing is left out: Proxmox also drops `unusedN` keys of volumes that are in use; it asks its storages.
    """
    text = _section_as_written(config.main)
    if config.pending.keys or config.pending.entries or config.pending.description:
        text += f"\n[{PENDING}]\n" + _section_as_written(config.pending)
    for name in sorted(config.snapshots):
        text += f"\n[{name}]\n" + _section_as_written(config.snapshots[name])
    return text


def _section_as_written(section: Section) -> str:
    lines = section.description.split("\n") if section.description not in ("", "0") else []
    while lines and not lines[-1]:
        lines.pop()
    text = "".join(f"#{_encode_text(line)}\n" for line in lines)
    text += "".join(
        f"{key}: {section.keys[key]}\n" for key in sorted(section.keys) if key not in _NOT_WRITTEN
    )
    return text + "".join(f"{entry.key}: {entry.value}\n" for entry in section.entries)


def _decode_text(text: str) -> str:
    return unquote_to_bytes(encode(text)).decode("utf-8", "replace")


def _encode_text(text: str) -> str:
    """As Proxmox escapes a description: all but printable ASCII, and the colon."""
    printable = b"".join(bytes((byte,)) for byte in range(ord(" "), ord("~") + 1) if byte != ord(":"))
    return "".join(chr(byte) if byte in printable else f"%{byte:02X}" for byte in text.encode())
