"""Where the bytes of one file come from: a local file here; a server's answer looks the same from outside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from model_stager.errors import SourceUnusableError

if TYPE_CHECKING:
    from pathlib import Path

SMALL = 16 << 20  # what may be held in memory as a whole: an index, a config, a tokenizer
AHEAD = 16 << 20  # asked for in advance: many disks read ahead by 128 kB only


class Reader(Protocol):
    """One worker's open way to a file's bytes. Messages continue the file's name: "ends at byte 5"."""

    def readinto(self, view: memoryview) -> int:
        """The next bytes, 0 at the end; raises SourceUnusableError or SourceFlakyError."""

    def forget(self, start: int, end: int) -> None:
        """The pages of these bytes are not needed again; nothing to do for a network."""

    def close(self) -> None:
        """May be called by another thread than the one that reads, and more than once."""


class Origin(Protocol):
    """One file as a source has it."""

    @property
    def where(self) -> str:
        """Path, or URL without any secret, for messages."""

    @property
    def path(self) -> Path | None:
        """The local file, where there is one."""

    @property
    def ranges(self) -> bool:
        """Whether it may be opened at any offset, by several workers at once."""

    def size_bytes(self) -> int | None:
        """As the source says; None when it does not."""

    def content(self, limit: int = SMALL) -> bytes:
        """The whole of a small file."""

    def open(self, start: int, end: int) -> Reader:
        """Its bytes from start up to, not including, end; RangeIgnoredError when only 0 is a start.

        As with Reader, messages continue the file's name.
        """


class LocalFile:
    """A file on a disk or on a network mount."""

    ranges = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)

    def size_bytes(self) -> int | None:
        return self.path.stat().st_size

    def content(self, limit: int = SMALL) -> bytes:
        try:
            with self.path.open("rb") as stream:
                content = stream.read(limit + 1)
        except OSError as exc:
            raise SourceUnusableError(f"{self.path.name} can't be read: {exc.strerror}") from exc
        if len(content) > limit:
            raise SourceUnusableError(f"{self.path.name} is larger than {limit} bytes")
        return content

    def open(self, start: int, end: int) -> Reader:
        return LocalReader(self.path, start, end)


class LocalReader:
    """Reads ahead of itself; what it has read can be dropped behind it."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise SourceUnusableError(f"can't be opened: {exc.strerror}") from exc
        self._offset = self._asked = start
        self._end = end
        os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_SEQUENTIAL)

    def readinto(self, view: memoryview) -> int:
        if self._offset >= self._asked:
            self._asked = self._offset + AHEAD
            # Past the end as well: another worker, or this one next, goes on from there.
            os.posix_fadvise(self._descriptor, self._offset, 2 * AHEAD, os.POSIX_FADV_WILLNEED)
        try:
            got = os.preadv(self._descriptor, [view[: self._end - self._offset]], self._offset)
        except OSError as exc:
            raise SourceUnusableError(f"can't be read at byte {self._offset}: {exc.strerror}") from exc
        self._offset += got
        return got

    def forget(self, start: int, end: int) -> None:
        if end > start:  # a length of 0 would mean all up to the file's end
            os.posix_fadvise(self._descriptor, start, end - start, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
