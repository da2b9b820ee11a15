"""The file that is being written: which bytes are there, which are claimed, and the hash of its beginning.

Extents land in any order. The running hash goes through the file once, in order: whoever writes at its
position hashes the block that it still has in its buffer; what has landed further on is read back from
where it landed, by whoever has nothing better to do.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import hashlib
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING

from model_stager.errors import NoRoomError, StagerError

if TYPE_CHECKING:
    from pathlib import Path

    from model_stager.manifest import FileEntry
    from model_stager.parts import PartJournal
    from model_stager.sources import Source
    from model_stager.tally import Tally

PART = 64 << 20  # a mark in the journal each time that so much more is verified
READ_BACK = 1 << 18  # smaller than a core's own cache
NEAR = 64 << 20  # of a disk, how far the workers may be ahead of one who does nothing but hash
FULL = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)


class Landing:
    """One file on the way in; safe to use from all workers."""

    def __init__(self, entry: FileEntry, target: Path, journal: PartJournal, tally: Tally) -> None:
        self.entry = entry
        self.size = entry.size_bytes or 0
        self.target = target
        self._journal = journal
        self._tally = tally
        self._lock = threading.Condition(threading.Lock())
        self._full = False
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if target.lstat().st_nlink > 1:  # also a file of the published copy: not to be written to
                target.unlink()
        self._descriptor = self._open()
        self._hash, self.hashed = journal.verified_prefix(entry.name, self._descriptor)
        self._hashing = self._following = False  # by somebody; and that one does nothing else
        self._marked = self.hashed
        self._gaps = [(self.hashed, self.size)] if self.hashed < self.size else []  # nobody's yet, in order
        self._runs: dict[int, tuple[int, Source]] = {}  # start → how far it has landed, and from where
        self._givers: Counter[Source | None] = Counter({None: self.hashed})
        tally.land(self.hashed, copied=False)

    def _open(self) -> int:
        return os.open(self.target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)

    @property
    def givers(self) -> dict[Source | None, int]:
        """Which source gave how many of the bytes that are there; None stands for an earlier run."""
        with self._lock:
            return {giver: count for giver, count in self._givers.items() if count > 0}

    # Claiming

    @property
    def unclaimed(self) -> int:
        with self._lock:
            return sum(end - start for start, end in self._gaps)

    def claim(self, most: int) -> tuple[int, int] | None:
        """The next extent for one worker, about so long."""
        with self._lock:
            if not self._gaps:
                return None
            start, end = self._gaps.pop(0)
            if end - start > most + most // 2:  # no crumbs
                self._gaps.insert(0, (start + most, end))
                end = start + most
            return start, end

    def claim_rest(self) -> tuple[int, int] | None:
        """All that does not follow the hash is thrown away: for a source that can only start at its start."""
        with self._lock:
            if self._hashing or self._ready() > self.hashed or self.hashed == self.size:
                return None
            for start, (end, giver) in self._runs.items():
                lost = max(0, end - max(start, self.hashed))
                self._givers[giver] -= lost
                self._tally.land(-lost, copied=False)
            self._runs.clear()
            self._gaps.clear()
            os.ftruncate(self._descriptor, self.hashed)
            return self.hashed, self.size

    def give_back(self, start: int, end: int) -> None:
        """What is left of an extent, for another worker."""
        if start < end:
            with self._lock:
                bisect.insort(self._gaps, (start, end))

    # Writing and hashing

    def land(self, start: int, at: int, block: memoryview, giver: Source) -> bool:
        """Write a block of the extent that began at start; True: it is the caller's to hash."""
        try:
            done = 0
            while done < len(block):
                done += os.pwrite(self._descriptor, block[done:], at + done)
        except OSError as exc:
            if exc.errno not in FULL:
                raise
            self._full = True
            raise NoRoomError(
                f"{self.target}: {exc.strerror} after {self._tally.landed_bytes} of "
                f"{self._tally.total_bytes} bytes of the model; verified parts stay for the next run"
            ) from exc
        with self._lock:
            self._runs[start] = at + len(block), giver
            self._givers[giver] += len(block)
            mine = not self._hashing and self.hashed == at
            self._hashing = self._hashing or mine
        self._tally.land(len(block))
        return mine

    def stay_near(self, at: int, stop: threading.Event) -> None:
        """Wait for the worker at the hash: being far ahead of it gains nothing, and a kill would cost it."""
        with self._lock:
            while self._following and at - self.hashed > NEAR and not stop.is_set():
                self._lock.wait(0.1)

    def hash_block(self, block: memoryview) -> None:
        """Hash the block that landed at the hash's position."""
        self._advance(block)
        with self._lock:
            self._hashing = False

    def take_hash(self) -> bool:
        """True: there is something behind the hash's position, and the caller is the one to hash it."""
        with self._lock:
            if self._hashing or self._ready() == self.hashed:
                return False
            self._hashing = self._following = True
            return True

    def hash_ahead(self, buffer: memoryview, stop: threading.Event) -> None:
        """Hash what has landed, until there is no more of it."""
        while True:
            with self._lock:
                ready = self._ready()
                if ready == self.hashed or stop.is_set():
                    self._hashing = self._following = False
                    self._lock.notify_all()
                    return
            got = os.preadv(self._descriptor, [buffer[: min(READ_BACK, ready - self.hashed)]], self.hashed)
            if got == 0:
                raise StagerError(f"{self.target} was cut by somebody while it was written")
            self._advance(buffer[:got])

    def _ready(self) -> int:
        """Up to where the file has landed without a hole."""
        return max(
            (end for start, (end, _) in self._runs.items() if start <= self.hashed < end), default=self.hashed
        )

    def _advance(self, block: memoryview) -> None:
        self._hash.update(block)
        end = self.hashed + len(block)
        if end - self._marked >= PART:
            self._journal.mark(self.entry.name, end, self._hash.hexdigest())
            self._marked = end
            with self._lock:
                self._runs = {start: run for start, run in self._runs.items() if run[0] > end}
        with self._lock:
            self.hashed = end
            self._lock.notify_all()

    # The end of it

    @property
    def whole(self) -> bool:
        """All is there, and all is in the hash."""
        with self._lock:
            return self.hashed == self.size and not self._hashing

    def sha256(self) -> str:
        return self._hash.hexdigest()

    def restart(self, aside: Path | None = None) -> None:
        """Its hash is not the one that was wanted: throw it away, or put it aside; begin with nothing."""
        if aside is not None:
            aside.parent.mkdir(parents=True, exist_ok=True)
            self.target.replace(aside)
            os.close(self._descriptor)
            self._descriptor = self._open()
        os.ftruncate(self._descriptor, 0)
        self._journal.restart(self.entry.name)
        self._tally.land(-self.size, copied=False)
        with self._lock:
            self._hash, self.hashed, self._marked = hashlib.sha256(), 0, 0
            self._gaps = [(0, self.size)]
            self._runs.clear()
            self._givers.clear()

    def finish(self, *, durable: bool) -> None:
        if durable:
            os.fsync(self._descriptor)
        self._journal.whole(self.entry.name, self.target)

    def close(self) -> None:
        """What is verified is noted; what a full filesystem holds beyond that gives way, for saying so."""
        if self._full:
            os.ftruncate(self._descriptor, self._marked)
        elif self._marked < self.hashed < self.size and not self._hashing:
            self._journal.mark(self.entry.name, self.hashed, self._hash.hexdigest())
        os.close(self._descriptor)
