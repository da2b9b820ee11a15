"""The quick proof: what each published file looked like to the kernel, compared in less than a millisecond.

Size, mtime, ctime and inode change with every write, truncation, touch and replacement; boot id and device
with every mount. A byte changed behind the kernel's back shows only when everything is hashed again.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_stager.room import is_in_memory

SCHEMA_VERSION = 1
STAMPS = 4
OTHER_CONTENTS = "its record is of other contents"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Comparison:
    """A published folder against its record: which files are as recorded, what is wrong with the others."""

    intact: frozenset[str] = frozenset()
    faults: dict[str, str] = field(default_factory=dict)  # file → what is wrong
    extra: tuple[str, ...] = ()
    no_record: str = ""  # why nothing can be told

    @property
    def proven(self) -> bool:
        return not self.faults and not self.extra and not self.no_record

    def sentences(self) -> list[str]:
        if self.no_record:
            return [self.no_record]
        found = [f"{name} {fault}" for name, fault in sorted(self.faults.items())]
        return found + [f"{name} does not belong there" for name in self.extra]


def boot_id() -> str:
    return BOOT_ID.read_text(encoding="utf-8").strip()


def stamp(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def take(folder: Path) -> dict[str, list[int]]:
    """Every file below the folder, links not followed."""
    found: dict[str, list[int]] = {}
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    found[os.path.relpath(entry.path, folder)] = stamp(entry.stat(follow_symlinks=False))
    return found


def make(folder: Path, manifest_digest: str, request: dict[str, Any]) -> dict[str, Any]:
    """The record to be kept beside the folder."""
    in_memory = is_in_memory(folder)
    return {
        "schema_version": SCHEMA_VERSION,
        # A disk keeps its inodes over a reboot, and may come up under another device number.
        "boot_id": boot_id() if in_memory else None,
        "device": folder.stat().st_dev if in_memory else None,
        "manifest_digest": manifest_digest,
        "request": request,
        "files": take(folder),
    }


def read(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and _understood(record) else None


def _understood(record: dict[str, Any]) -> bool:
    """One that is older, newer, or was edited, is as good as none: everything is hashed then."""
    files = record.get("files")
    return (
        record.get("schema_version") == SCHEMA_VERSION
        and isinstance(record.get("manifest_digest"), str)
        and isinstance(files, dict)
        and all(isinstance(stamps, list) and len(stamps) == STAMPS for stamps in files.values())
    )


def compare(folder: Path, record: dict[str, Any] | None, manifest_digest: str) -> Comparison:
    """Hold the folder against its record."""
    if not folder.is_dir() or folder.is_symlink():
        return Comparison(no_record="it is not there" if not os.path.lexists(folder) else "it is no folder")
    if record is None:
        return Comparison(no_record="it has no record of a proof")
    if record["manifest_digest"] != manifest_digest:
        return Comparison(no_record=OTHER_CONTENTS)
    if record.get("boot_id") not in (None, boot_id()):
        return Comparison(no_record="its record is from before the last boot")
    if record.get("device") not in (None, folder.stat().st_dev):
        return Comparison(no_record="its record is from another mount")
    recorded, found = record["files"], take(folder)
    faults = {name: _fault(was, found.get(name)) for name, was in recorded.items()}
    wrong = {name: fault for name, fault in faults.items() if fault}
    return Comparison(
        intact=frozenset(set(recorded) - set(wrong)),
        faults=wrong,
        extra=tuple(sorted(set(found) - set(recorded))),
    )


def _fault(was: list[int], now: list[int] | None) -> str:
    if now is None:
        return "is missing"
    if now == was:
        return ""
    if now[0] != was[0]:
        return f"has {now[0]} bytes, {was[0]} were published"
    return "was touched since it was published" if now[3] == was[3] else "was replaced"
