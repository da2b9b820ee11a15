"""Bring files from their sources: what the next worker does, and what becomes of each file.

Read once, hashed and written in the same pass. Without dropping the source's pages behind, the page cache
would fight the tmpfs for memory, which costs more than the hashing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Callable

from model_stager.errors import NoSourceError, SourceUnusableError
from model_stager.landing import Landing
from model_stager.lanes import Lane, RevokedError, Search, Watched
from model_stager.text import seconds_text
from model_stager.torn import torn_reason
from model_stager.workers import AbandonedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from model_stager.inspection import BadFiles
    from model_stager.parts import PartJournal
    from model_stager.resolve import Reasons
    from model_stager.sources import Source
    from model_stager.tally import Tally
    from model_stager.transfer import Transfer
    from model_stager.workers import Crew, Task


class Copying:
    """The job of a crew: several files at once, and several workers on a file when few are left."""

    def __init__(  # noqa: PLR0913 - what a copy is made with
        self,
        transfers: Iterable[Transfer],
        crew: Crew,
        *,
        folder: Path,
        journal: PartJournal,
        tally: Tally,
        reasons: Reasons,
        bad_files: BadFiles,
        durable: bool,
    ) -> None:
        self._waiting = sorted(
            transfers, key=lambda transfer: transfer.left
        )  # the largest first, from the end
        self._active: list[Transfer] = []
        self._watched: dict[Watched, Transfer] = {}
        self._silent: set[Source] = set()
        self._crew = crew
        self._folder = folder
        self._journal = journal
        self._tally = tally
        self._reasons = reasons
        self._bad_files = bad_files
        self._durable = durable

    def done(self) -> bool:
        return not self._waiting and not self._active

    def next(self, mine: object) -> Task | None:
        """First what ends a file, then the hash, then the file at hand; others are helped at the end."""
        idle = [transfer for transfer in self._active if not transfer.busy]
        for transfer in idle:
            if transfer.landing and transfer.landing.whole and not transfer.lanes:
                return self._alone(transfer, self._judge)
        for transfer in idle:
            if transfer.landing and transfer.landing.take_hash():
                return partial(self._hash, transfer)
        for transfer in idle:
            if transfer is mine and (task := self._bring(transfer)):
                return task
        if self._waiting:
            transfer = self._waiting.pop()
            self._active.append(transfer)
            return self._alone(transfer, self._open)
        for transfer in sorted(idle, key=lambda transfer: -transfer.left):
            if task := self._bring(transfer):
                return task
        return None

    def _alone(self, transfer: Transfer, work: Callable[[Transfer], None]) -> Task:
        transfer.busy = True

        def task(_buffer: memoryview) -> Transfer:
            work(transfer)
            with self._crew.changed:
                transfer.busy = False
                self._crew.changed.notify_all()
            return transfer

        return task

    def _bring(self, transfer: Transfer) -> Task | None:
        if not transfer.left:
            return None
        if transfer.source is None:
            search = transfer.search(self._silent)
            if search is None:
                raise NoSourceError(f"no source could give {transfer.entry.name}: {self._reasons}")
            transfer.busy = True
            self._watched[search] = transfer
            return partial(self._search, transfer, search)
        lane = transfer.lane(self._crew.threads)
        if lane is None:
            return None
        self._watched[lane] = transfer
        return partial(self._carry, transfer, lane)

    # Tasks: these run without the lock.

    def _open(self, transfer: Transfer) -> None:
        name, target = transfer.entry.name, self._folder / transfer.entry.name
        if self._journal.is_whole(name, target):
            size = transfer.entry.size_bytes or 0
            self._tally.land(size, copied=False)
            self._tally.end(name, {}, resumed=size)
            self._drop(transfer)
        else:
            transfer.landing = Landing(transfer.entry, target, self._journal, self._tally)

    def _search(self, transfer: Transfer, search: Search, _buffer: memoryview) -> Transfer:
        reason = origin = None
        try:
            origin = search.run()
        except RevokedError:
            raise AbandonedError from None
        except SourceUnusableError as exc:
            reason = exc
        with self._crew.changed:
            del self._watched[search]
            transfer.busy = False
            if origin is not None:
                transfer.use(search.source, origin)
                self._tally.begin(transfer.entry.name, search.source.label)
            elif reason is not None:
                transfer.refuse(search.source, reason)
            self._crew.changed.notify_all()
        return transfer

    def _carry(self, transfer: Transfer, lane: Lane, buffer: memoryview) -> Transfer:
        reason = None
        try:
            lane.carry(buffer, self._crew.stop)
        except RevokedError:
            if lane.abandoned:
                raise AbandonedError from None
        except SourceUnusableError as exc:
            reason = exc
        with self._crew.changed:
            self._watched.pop(lane, None)
            transfer.ended(lane, reason)
            self._crew.changed.notify_all()
        return transfer

    def _hash(self, transfer: Transfer, buffer: memoryview) -> Transfer:
        if transfer.landing:
            transfer.landing.hash_ahead(buffer, self._crew.stop)
        return transfer

    def _judge(self, transfer: Transfer) -> None:
        landing, entry = transfer.landing, transfer.entry
        if landing is None:
            return
        if landing.sha256() == entry.sha256:
            landing.finish(durable=self._durable)
            givers = landing.givers
            resumed = givers.pop(None, 0)
            by_source = {giver.label: count for giver, count in givers.items() if giver}
            self._tally.end(entry.name, by_source, resumed=resumed)
            self._drop(transfer)
            landing.close()
        elif transfer.source is not None and set(landing.givers) == {transfer.source}:
            self._refuse_sum(transfer, landing, transfer.source)
        elif landing.size == 0:
            raise NoSourceError(f"{entry.name} should be empty and have sha256 {entry.sha256}: no file can")
        else:  # it may be the fault of a source before, or of an earlier run: once more, from this one alone
            landing.restart()

    def _refuse_sum(self, transfer: Transfer, landing: Landing, source: Source) -> None:
        entry = transfer.entry
        said = f"{entry.name} ({transfer.where}) has sha256 {landing.sha256()}, "
        said += f"the manifest says {entry.sha256}"
        if reason := torn_reason(landing.target, entry.name):
            said += f": {reason}"
        aside = None
        if not transfer.local:
            still = self._tally.total_bytes - self._tally.landed_bytes + landing.size
            aside = self._bad_files.place(entry.name, still)
            said += f"; it is kept as {aside}" if aside else "; there is no room to keep it for a look"
        landing.restart(aside)
        with self._crew.changed:
            transfer.refuse(source, SourceUnusableError(said))

    def _drop(self, transfer: Transfer) -> None:
        with self._crew.changed:
            self._active.remove(transfer)

    # The end, in whichever way

    def abandon_silent(self, limit_s: float) -> int:
        lost = 0
        for watched, transfer in tuple(self._watched.items()):
            if not watched.abandon(limit_s, stopping=self._crew.stop.is_set()):
                continue
            lost += 1
            del self._watched[watched]
            self._silent.add(watched.source)
            if isinstance(watched, Lane):
                silent = f"gave no byte for {seconds_text(limit_s)}, it is at byte {watched.at}"
                transfer.ended(watched, SourceUnusableError(silent))
                watched.wake()
            else:
                transfer.busy = False
                silent = f"{transfer.entry.name}: no answer for {seconds_text(limit_s)}"
                transfer.refuse(watched.source, SourceUnusableError(silent))
        return lost

    def close(self) -> None:
        """What is verified stays for the next run."""
        for transfer in self._active:
            if transfer.landing:
                transfer.landing.close()
