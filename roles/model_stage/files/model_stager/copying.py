"""Copy one file in one pass: read once, hash, write; and leave the page cache as it was found.

Without dropping behind, the page cache fights the tmpfs for memory, which costs more than the hashing.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Callable

from model_stager.errors import NoRoomError, SourceUnusableError, StoppedError
from model_stager.hashing import HashBehind, HashBeside

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable
    from pathlib import Path

    from model_stager.hashing import RunningHash
    from model_stager.manifest import FileEntry
    from model_stager.origins import Origin
    from model_stager.parts import PartJournal
    from model_stager.sources import Source
    from model_stager.tally import Tally

PART = 64 << 20  # a mark in the journal, and a drop of the source's pages, this often


class Landing:
    """The file that is being written: what has landed, and the running hash over exactly that."""

    def __init__(
        self, entry: FileEntry, target: Path, journal: PartJournal, tally: Tally, *, behind: bool = False
    ) -> None:
        self.entry = entry
        self.size = entry.size_bytes or 0
        self._target = target
        self._journal = journal
        self._tally = tally
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if target.lstat().st_nlink > 1:  # also a file of the published copy: not to be written to
                target.unlink()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(target, flags, 0o644)
        hasher, self.offset = journal.verified_prefix(entry.name, self._descriptor)
        self._hash: RunningHash = HashBehind(hasher) if behind else HashBeside(hasher)
        self._marked = self.offset
        os.lseek(self._descriptor, self.offset, os.SEEK_SET)
        tally.land(self.offset, copied=False)

    def buffer(self) -> memoryview:
        """Where to read the next block into, before it is appended."""
        return self._hash.buffer()[: self.size - self.offset]

    def append(self, block: memoryview) -> None:
        try:
            done = 0
            while done < len(block):
                done += os.write(self._descriptor, block[done:])
        except OSError as exc:
            if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
                os.ftruncate(self._descriptor, self._marked)  # leaves room for saying so
                raise NoRoomError(
                    f"{self._target}: {exc.strerror} after {self.offset} of {self.size} bytes; "
                    "verified parts stay for the next run"
                ) from exc
            raise
        self.offset += len(block)
        self._tally.land(len(block))
        self._hash.update(block)

    def mark(self) -> None:
        """Note in the journal what has landed so far, once its sum is known."""
        end = self.offset

        def note(sha256: str) -> None:
            self._journal.mark(self.entry.name, end, sha256)
            self._marked = end

        self._hash.then(note)

    def restart(self) -> None:
        """Throw away what has landed: its hash is not the one that was wanted."""
        self._hash.reset()
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._journal.restart(self.entry.name)
        self._tally.land(-self.offset, copied=False)
        self.offset = self._marked = 0

    def sha256(self) -> str:
        return self._hash.hexdigest()

    def finish(self, *, durable: bool) -> None:
        if durable:
            os.fsync(self._descriptor)
        self._journal.whole(self.entry.name, self._target)

    def close(self) -> None:
        self._hash.close()  # first, as it may still note a mark
        os.close(self._descriptor)


def pump(origin: Origin, landing: Landing, stop: threading.Event) -> None:
    """Bring the rest of the file from the source; what has landed stays right when the source fails."""
    name = landing.entry.name
    try:
        with contextlib.closing(origin.open(landing.offset, landing.size)) as reader:
            dropped = landing.offset
            while landing.offset < landing.size:
                if stop.is_set():
                    landing.mark()
                    raise StoppedError("stopped")
                view = landing.buffer()
                got = reader.readinto(view)
                if got == 0:
                    raise SourceUnusableError(f"ends at byte {landing.offset}, it should have {landing.size}")
                landing.append(view[:got])
                if landing.offset - dropped >= PART:
                    reader.forget(dropped, landing.offset)
                    dropped = landing.offset
                    landing.mark()
            reader.forget(dropped, landing.offset)
    except SourceUnusableError as exc:
        raise SourceUnusableError(f"{name} {exc}") from exc


def copy_verified(
    landing: Landing,
    found: Iterable[tuple[Source, Origin]],
    stop: threading.Event,
    on_reason: Callable[[Source, SourceUnusableError], None],
) -> Source | None:
    """The source that could give the file with the right sha256; None when no source could."""
    entry = landing.entry
    for source, origin in found:
        # A wrong sum after a continued copy may be the earlier source's fault: once more from the start.
        for _ in range(2 if landing.offset else 1):
            try:
                pump(origin, landing, stop)
            except SourceUnusableError as exc:
                on_reason(source, exc)
                break
            if landing.sha256() == entry.sha256:
                return source
            sums = f"sha256 {landing.sha256()}, the manifest says {entry.sha256}"
            landing.restart()
        else:
            on_reason(source, SourceUnusableError(f"{entry.name} ({origin.where}) has {sums}"))
    return None
