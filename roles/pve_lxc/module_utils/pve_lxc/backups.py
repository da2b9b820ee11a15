"""Backups of container files, kept outside `/etc/pve`, and the majors that were NVIDIA's on this host."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import PveLxcError, Refused
from .store import digest

if TYPE_CHECKING:
    from pathlib import Path

KEEP = 20
RECORDS_VERSION = 1
_SHORT = 12
_BACKUP = re.compile(r"\d{8}T\d{6}Z-(?P<before>[0-9a-f]{12})-(?P<after>[0-9a-f]{12})\.conf", re.ASCII)


@dataclass(frozen=True)
class Backup:
    """One file as it was before a change; the name says from which digest to which the change led."""

    path: Path
    before: str
    after: str


class Backups:
    """`<folder>/<vmid>/<time>-<digest before>-<digest after>.conf`, the newest last."""

    def __init__(self, folder: Path, vmid: str) -> None:
        self.folder = folder / vmid

    def all(self) -> list[Backup]:
        found = [(path, _BACKUP.fullmatch(path.name)) for path in sorted(self.folder.glob("*.conf"))]
        return [Backup(path, match["before"], match["after"]) for path, match in found if match]

    def keep(self, before: bytes, after: bytes) -> Path:
        """Save `before`, made durable before the file itself is touched."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = self.folder / f"{stamp}-{digest(before)[:_SHORT]}-{digest(after)[:_SHORT]}.conf"
        write_durably(path, before)
        for old in self.all()[:-KEEP]:
            old.path.unlink()
        return path

    def to_restore(self, current: bytes, name: str = "", *, force: bool = False) -> bytes:
        """What the file was before the newest (or the named) change; refused if it was changed since."""
        backups = self.all()
        if name:
            backups = [backup for backup in backups if backup.path.name == name]
        if not backups:
            raise Refused(
                f"{self.folder} has no backup{f' named {name}' if name else ''}: nothing to restore"
            )
        backup = backups[-1]
        found = digest(current)[:_SHORT]
        if found not in (backup.before, backup.after) and not force:
            raise Refused(
                f"the file was changed since our own change (digest {found}, ours left {backup.after}); to "
                f"restore {backup.path} would lose that. Compare them, then set force to restore it anyway"
            )
        return backup.path.read_bytes()


class Records:
    """Which majors were NVIDIA's on this host: `{"511": ["nvidia-uvm"]}`. It only ever grows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, list[str]]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            version, majors = data["schema_version"], data["majors"]
            if version > RECORDS_VERSION:
                raise PveLxcError(
                    f"{self.path} is of version {version}, this program reads up to {RECORDS_VERSION}"
                )
            return {str(int(major)): [str(name) for name in names] for major, names in majors.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
            raise PveLxcError(
                f"{self.path} can't be read as records of majors ({exc!r}): mend or remove it"
            ) from exc

    def write(self, majors: dict[str, list[str]]) -> None:
        ordered = {major: sorted(majors[major]) for major in sorted(majors, key=int)}
        text = json.dumps({"schema_version": RECORDS_VERSION, "majors": ordered}, indent=1) + "\n"
        write_durably(self.path, text.encode())


def write_durably(path: Path, content: bytes) -> None:
    """The whole file or none of it, on disk when this returns. Not for pmxcfs: it sets a mode."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        temporary.rename(path)
    except OSError as exc:
        raise PveLxcError(f"{path} can't be written: {exc.strerror}; nothing else was changed") from exc
