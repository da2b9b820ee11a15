"""A few threads over a list of files: reading, hashing and writing all let go of Python's lock."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from model_stager.errors import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from model_stager.manifest import FileEntry

    Work = Callable[[FileEntry], None]


class Workers:
    """Runs work on files; the first error stops all."""

    def __init__(self, threads: int, stop: threading.Event) -> None:
        self._threads = threads
        self._stop = stop
        self._errors: list[BaseException] = []

    def run(self, entries: Sequence[FileEntry], work: Work) -> None:
        """Raises the first error, or StoppedError when a signal came first."""
        waiting: queue.SimpleQueue[FileEntry] = queue.SimpleQueue()
        for entry in entries:
            waiting.put(entry)
        count = max(1, min(self._threads, len(entries)))
        threads = [threading.Thread(target=self._one, args=(waiting, work)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        if self._stop.is_set():
            raise StoppedError("stopped")

    def _one(self, waiting: queue.SimpleQueue[FileEntry], work: Work) -> None:
        try:
            while not self._stop.is_set() and not waiting.empty():
                work(waiting.get_nowait())
        except (queue.Empty, StoppedError):  # another worker took the last file, or all are to stop
            return
        except BaseException as exc:  # noqa: BLE001 - raised again by the thread that waits
            self._errors.append(exc)
            self._stop.set()
