"""One file's way from its sources: which one it is read from now, and what becomes of failures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from model_stager.errors import RangeIgnoredError, SourceFlakyError, SourceUnusableError
from model_stager.lanes import Lane, Search
from model_stager.text import count_text, seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from model_stager.landing import Landing
    from model_stager.manifest import FileEntry
    from model_stager.origins import Origin
    from model_stager.resolve import Reasons
    from model_stager.sources import Source

LOCAL_EXTENT = 32 << 20  # short, so that the hash soon has a worker to itself; to open again costs nothing
LEAST_EXTENT = 64 << 20  # over a network each is a request
LARGEST_EXTENT = 256 << 20  # what a kill may cost a worker that is ahead of the hash
ALIGN = 1 << 20  # so that no page is written by two
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 10.0
TRIES = 6  # in a row, without a byte between them


class Patience:
    """How long one source is still asked again for one file."""

    def __init__(self, seconds: float) -> None:
        self._seconds = self._left_s = seconds
        self._tries = self._asked = 0

    def wait_s(self, asked_to_wait_s: float | None) -> float | None:
        """How long to wait before asking again; None when it has been asked often enough."""
        wait = min(FIRST_WAIT_S * (1 << self._tries), LONGEST_WAIT_S)
        if asked_to_wait_s is not None:
            wait = max(wait, asked_to_wait_s)
        if self._tries >= TRIES or wait > self._left_s:
            return None
        self._tries += 1
        self._asked += 1
        self._left_s -= wait
        return wait

    def renew(self) -> None:
        """Bytes have come since."""
        self._tries = 0

    def spent(self, asked_to_wait_s: float | None) -> str:
        again = f"asked again {count_text(self._asked, 'time')}" if self._asked else "not asked again"
        if asked_to_wait_s is not None and asked_to_wait_s > self._left_s:
            again += f": it wants {seconds_text(asked_to_wait_s)} of waiting, {seconds_text(self._left_s)} "
            return again + f"of {seconds_text(self._seconds)} are left"
        return again


class Transfer:
    """Its methods are called under the copier's lock, but for those of `landing`."""

    def __init__(
        self, entry: FileEntry, sources: Iterable[Source], reasons: Reasons, patience_s: float
    ) -> None:
        self.entry = entry
        self.landing: Landing | None = None  # once it has been opened
        self.busy = (
            False  # one worker has the file for itself: to open it, to find a source, to judge the sum
        )
        self.lanes: set[Lane] = set()
        self.source: Source | None = None
        self._origin: Origin | None = None
        self._waiting = list(sources)
        self._reasons = reasons
        self._patience_s = patience_s
        self._patience = Patience(patience_s)
        self._not_before = 0.0
        self._one_stream = False
        self._seen = 0  # bytes that had come when a source last failed

    @property
    def left(self) -> int:
        """Bytes that nobody brings yet."""
        return self.landing.unclaimed if self.landing else self.entry.size_bytes or 0

    # Sources

    def search(self, slow: set[Source]) -> Search | None:
        """Ask the next source, one that has not fallen silent before if there is one; None: none is left."""
        if not self._waiting:
            return None
        source = next((source for source in self._waiting if source not in slow), self._waiting[0])
        self._waiting.remove(source)
        return Search(source, self.entry, self._patience_s)

    def use(self, source: Source, origin: Origin) -> None:
        self.source, self._origin = source, origin
        self._patience = Patience(self._patience_s)
        self._not_before = 0.0
        self._one_stream = not origin.ranges

    def refuse(self, source: Source, reason: SourceUnusableError) -> None:
        """This source can't give the file; the reason is kept."""
        self._reasons.add(source, reason)
        if source is self.source:
            self.source = self._origin = None

    @property
    def where(self) -> str:
        return self._origin.where if self._origin else ""

    @property
    def local(self) -> bool:
        return self._origin is None or self._origin.path is not None

    # Lanes

    def lane(self, workers: int) -> Lane | None:
        """An extent to bring now, if there is one that may be brought."""
        if self.busy or not self.landing or not self.source or not self._origin:
            return None
        if time.monotonic() < self._not_before:
            return None
        if self._one_stream:
            extent = None if self.lanes else self.landing.claim_rest()
        else:
            extent = self.landing.claim(self._most(workers))
        if extent is None:
            return None
        lane = Lane(self.landing, self.source, self._origin, extent, from_zero=self._one_stream)
        self.lanes.add(lane)
        return lane

    def _most(self, workers: int) -> int:
        """Over a network: large while much is left, small towards the end, so that all end together."""
        if self.local:
            return LOCAL_EXTENT
        guided = self.left // (2 * workers) // ALIGN * ALIGN
        return min(max(guided, LEAST_EXTENT), LARGEST_EXTENT)

    def ended(self, lane: Lane, reason: SourceUnusableError | None) -> None:
        """Its rest is to be brought by another, from wherever the reason allows."""
        if lane not in self.lanes:  # it was revoked before
            return
        self.lanes.remove(lane)
        if self.landing:
            self.landing.give_back(lane.at, lane.end)
        if reason is None or lane.source is not self.source:
            if reason is not None:
                self._reasons.add(lane.source, self._named(reason))
        elif isinstance(reason, RangeIgnoredError) and not self._one_stream:
            self._one_stream = True
            for other in tuple(self.lanes):
                other.revoke()
                self.ended(other, None)
        elif not (isinstance(reason, SourceFlakyError) and self._again(reason)):
            self.refuse(lane.source, self._named(reason))

    def _named(self, reason: SourceUnusableError) -> SourceUnusableError:
        text = f"{self.entry.name} {reason}"
        if isinstance(reason, SourceFlakyError):
            text += f" ({self._patience.spent(reason.retry_after_s)})"
        return SourceUnusableError(text)

    def _again(self, reason: SourceFlakyError) -> bool:
        """Whether to ask the same source again; several lanes that fail at once count as one."""
        now = time.monotonic()
        if now < self._not_before:
            return True
        came = sum(self.landing.givers.values()) if self.landing else 0
        if came > self._seen:
            self._patience.renew()
        self._seen = came
        wait = self._patience.wait_s(reason.retry_after_s)
        if wait is not None:
            self._not_before = now + wait
        return wait is not None
