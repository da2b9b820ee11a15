"""A crew of threads over a job: reading, hashing and writing all let go of Python's lock.

A thread that hangs in a read can't be ended. It is left behind as it is, another takes its place, and as a
daemon it does not keep the process from ending.
"""

from __future__ import annotations

import mmap
import threading
from typing import TYPE_CHECKING, Callable, Protocol

from model_stager.errors import StoppedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model_stager.manifest import FileEntry

BLOCK = 1 << 20  # a worker's buffer: the memory of a copy is bounded by it
POLL_S = 0.05
STOP_S = 1.0  # how long a read may still last when all are to stop

# Works with the worker's buffer; returns what it worked on, which the worker likes to go on with.
Task = Callable[[memoryview], object]


class AbandonedError(Exception):
    """This thread hung, and another has taken its place."""


class Job(Protocol):
    """What a crew works on; all methods are called under the crew's lock."""

    def next(self, mine: object) -> Task | None:
        """For a worker that worked on `mine`; None when there is nothing to do at the moment."""

    def done(self) -> bool: ...

    def abandon_silent(self, limit_s: float) -> int:
        """Leave what has waited so long for a source; returns how many threads are lost by it."""


class Crew:
    """Runs a job; the first error stops all."""

    def __init__(self, threads: int, stop: threading.Event, stall_s: float) -> None:
        self.threads = max(1, threads)
        self.stop = stop
        self.changed = threading.Condition()
        self._stall_s = stall_s
        self._live = 0
        self._errors: list[BaseException] = []

    def run(self, job: Job) -> None:
        """Raises the first error, or StoppedError when a signal came first."""
        with self.changed:
            for _ in range(self.threads):
                self._start(job)
            while self._live:
                self.changed.wait(POLL_S)
                stopping = self.stop.is_set()
                for _ in range(job.abandon_silent(STOP_S if stopping else self._stall_s)):
                    self._live -= 1
                    if not stopping:
                        self._start(job)
        if self._errors:
            raise self._errors[0]
        if self.stop.is_set():
            raise StoppedError("stopped")

    def _start(self, job: Job) -> None:
        self._live += 1
        threading.Thread(target=self._work, args=(job,), name="worker", daemon=True).start()

    def _work(self, job: Job) -> None:
        # On a page's boundary: the kernel copies into a bytearray, which is not, at half the speed.
        buffer = memoryview(mmap.mmap(-1, BLOCK))
        mine: object = None
        try:
            while (task := self._next(job, mine)) is not None:
                mine = task(buffer)
        except AbandonedError:
            return
        except StoppedError:
            pass
        except BaseException as exc:  # noqa: BLE001 - raised again by the thread that waits
            self._errors.append(exc)
            self.stop.set()
        with self.changed:
            self._live -= 1
            self.changed.notify_all()

    def _next(self, job: Job, mine: object) -> Task | None:
        with self.changed:
            while not self.stop.is_set() and not job.done():
                task = job.next(mine)
                if task is not None:
                    return task
                self.changed.wait(POLL_S)
        return None


class FileByFile:
    """A job that does the same with each file."""

    def __init__(self, entries: Sequence[FileEntry], work: Callable[[FileEntry], None]) -> None:
        self._left = list(entries)
        self._work = work

    def next(self, mine: object) -> Task | None:  # noqa: ARG002 - each file is done at once
        entry = self._left.pop(0)
        return lambda _buffer: self._work(entry)

    def done(self) -> bool:
        return not self._left

    def abandon_silent(self, limit_s: float) -> int:  # noqa: ARG002 - memory does not fall silent
        return 0
