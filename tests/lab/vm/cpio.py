"""An initial root filesystem for a kernel: a cpio archive (newc), gzipped."""

from __future__ import annotations

import gzip
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DIRECTORY, PROGRAM = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755
END = "TRAILER!!!"


def write(path: Path, folders: list[str], files: Mapping[str, bytes]) -> None:
    entries = [(name, DIRECTORY, b"") for name in folders]
    entries += [(name, PROGRAM, content) for name, content in files.items()]
    parts = [_entry(number, *entry) for number, entry in enumerate([*entries, (END, 0, b"")], start=1)]
    path.write_bytes(gzip.compress(b"".join(parts), compresslevel=1, mtime=0))


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
