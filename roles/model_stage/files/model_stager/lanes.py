"""What a worker does for one file at a time, and how it is left when its source falls silent.

A read that hangs can't be ended from outside. So the lane is revoked and its thread abandoned: each write
happens under the lane's lock, after a look at whether it still holds, and a late answer changes nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from model_stager.errors import SourceUnusableError, StoppedError
from model_stager.landing import PART
from model_stager.resolve import locate

if TYPE_CHECKING:
    from model_stager.landing import Landing
    from model_stager.manifest import FileEntry
    from model_stager.origins import Origin, Reader
    from model_stager.sources import Source


# A network source has time limits of its own, which can say more; these are for when they fail.
NETWORK_OPEN_S = 15.0
NETWORK_READ_S = 1.0


class RevokedError(Exception):
    """The lane is no longer this thread's."""


class Watched:
    """Something that waits for a source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lock = threading.Lock()
        self.revoked = False
        self.abandoned = False  # revoked while its thread hung: another one has taken its place
        self.since: float | None = None  # when the wait began that goes on now
        self.allowance_s = 0.0  # it may last so much longer than the limit

    def revoke(self) -> None:
        """From here on its thread can't write."""
        with self.lock:
            self.revoked = True

    def abandon(self, limit_s: float, *, stopping: bool) -> bool:
        """Revoke it when it has waited so long; False when something came after all."""
        if not stopping:
            limit_s += self.allowance_s
        with self.lock:
            since = self.since  # once: its thread may end the wait between two looks
            if self.revoked or since is None or time.monotonic() - since < limit_s:
                return False
            self.revoked = self.abandoned = True
            return True

    def require(self) -> None:
        if self.revoked:
            raise RevokedError


class Search(Watched):
    """Asks a source for a file."""

    def __init__(self, source: Source, entry: FileEntry, patience_s: float) -> None:
        super().__init__(source)
        self._entry = entry
        self.allowance_s = patience_s  # a busy server is asked again inside

    def run(self) -> Origin:
        self.since = time.monotonic()
        try:
            return locate(self.source, self._entry)
        finally:
            self.since = None
            with self.lock:
                self.require()


class Lane(Watched):
    """Brings one extent of a file."""

    def __init__(
        self, landing: Landing, source: Source, origin: Origin, extent: tuple[int, int], *, from_zero: bool
    ) -> None:
        super().__init__(source)
        self._landing = landing
        self.origin = origin
        self.start, self.end = extent
        self.at = self.start  # the next byte to land
        self._from_zero = from_zero  # the source can't start elsewhere: what is there already is read past
        self._reader: Reader | None = None

    def carry(self, buffer: memoryview, stop: threading.Event) -> None:
        """Raises what the source raises, StoppedError, or RevokedError."""
        network = self.origin.path is None
        self.allowance_s = NETWORK_OPEN_S if network else 0.0
        self.since = time.monotonic()
        try:
            position = 0 if self._from_zero else self.at
            reader = self._reader = self.origin.open(position, self.end)
            self.since = None
            self.allowance_s = NETWORK_READ_S if network else 0.0
            with contextlib.closing(reader):
                dropped = position
                while position < self.end:
                    if stop.is_set():
                        raise StoppedError("stopped")
                    if not network:  # where many connections are faster than one, none of them waits
                        self._landing.stay_near(position, stop)
                    # Read past up to where the lane's part begins, then all that is left of it.
                    most = self.end if position >= self.start else self.start
                    self.since = time.monotonic()
                    got = reader.readinto(buffer[: most - position])
                    self.since = None
                    if got == 0:
                        self._ended(position)
                    if position >= self.start:
                        self._land(buffer[:got])
                    position += got
                    if position - dropped >= PART:
                        reader.forget(dropped, position)
                        dropped = position
                reader.forget(dropped, position)
        finally:
            self.since = None
            self.require()

    def _ended(self, position: int) -> None:
        raise SourceUnusableError(f"ends at byte {position}, it should have {self._landing.size}")

    def _land(self, block: memoryview) -> None:
        with self.lock:
            self.require()
            to_hash = self._landing.land(self.start, self.at, block, self.source)
            self.at += len(block)
        if to_hash:
            self._landing.hash_block(block)

    def wake(self) -> None:
        """Let go of what its thread hangs in; in a thread of its own, as this may hang as well."""
        if self._reader is not None:
            threading.Thread(target=self._reader.close, daemon=True).start()
