"""The part journal: how far each file of an unfinished copy was right, so that a killed run is continued.

A mark says "the first `end` bytes of this file have this sha256". It costs nothing, as the running hash is
only copied. The next run hashes what lies there again, up to the last mark that still holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from model_stager.proof import boot_id, stamp

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 1 << 20


@dataclass
class Known:
    """What an earlier run has left of one file."""

    marks: list[tuple[int, str]] = field(default_factory=list)
    whole: list[int] | None = None  # the stamp that the file had when its sha256 was right


class PartJournal:
    """Append-only, one line a fact; a torn last line is left out."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        head = {"digest": digest, "boot_id": boot_id()}
        self.known = self._load(head)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags if self.known else flags | os.O_TRUNC, 0o644)
        # A new line first: the one before may be torn.
        os.write(self._descriptor, b"\n" if self.known else json.dumps(head).encode() + b"\n")

    def _load(self, head: dict[str, str]) -> dict[str, Known]:
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        facts = [fact for fact in map(_fact, lines) if fact]
        if not facts or facts[0] != head:  # other contents, or a boot ago, when stamps meant other inodes
            return {}
        known: dict[str, Known] = {}
        for fact in facts[1:]:
            entry = known.setdefault(fact["file"], Known())
            if "stamp" in fact:
                entry.whole = fact["stamp"]
            elif fact["end"] == 0:
                entry.marks.clear()
            else:
                entry.marks.append((fact["end"], fact["sha256"]))
        return known

    def _append(self, fact: dict[str, Any]) -> None:
        # A mark that finds no room is work to be done again, no reason to fail now.
        with self._lock, contextlib.suppress(OSError):
            os.write(self._descriptor, json.dumps(fact).encode() + b"\n")

    def mark(self, file: str, end: int, sha256: str) -> None:
        self._append({"file": file, "end": end, "sha256": sha256})

    def restart(self, file: str) -> None:
        self._append({"file": file, "end": 0})

    def whole(self, file: str, path: Path) -> None:
        self._append({"file": file, "stamp": stamp(path.stat())})

    def is_whole(self, file: str, path: Path) -> bool:
        """Whether an earlier run finished this file, and it has not been touched since."""
        known = self.known.get(file)
        if known is None or known.whole is None:
            return False
        try:
            return stamp(path.lstat()) == known.whole
        except OSError:
            return False

    def verified_prefix(self, file: str, descriptor: int) -> tuple[hashlib._Hash, int]:
        """Hash what lies there, up to the last mark that holds; the bytes after it are cut off."""
        hasher, good, offset = hashlib.sha256(), hashlib.sha256(), 0
        known = self.known.get(file)
        size = os.fstat(descriptor).st_size
        end_of_good = 0
        buffer = bytearray(BLOCK)
        for end, sha256 in sorted(known.marks) if known else []:
            while offset < min(end, size):
                got = os.preadv(descriptor, [memoryview(buffer)[: min(BLOCK, end - offset)]], offset)
                hasher.update(memoryview(buffer)[:got])
                offset += got
            if offset != end or hasher.hexdigest() != sha256:
                break
            good, end_of_good = hasher.copy(), end
        os.ftruncate(descriptor, end_of_good)
        return good, end_of_good

    def close(self) -> None:
        os.close(self._descriptor)


def _fact(line: bytes) -> dict[str, Any] | None:
    try:
        fact = json.loads(line)
    except ValueError:
        return None
    return fact if isinstance(fact, dict) else None
