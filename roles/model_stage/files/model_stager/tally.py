"""What the workers have done so far: written by them, read by the progress file and the result."""

from __future__ import annotations

import threading
import time


class Tally:
    """Counts bytes and files; safe to use from all workers."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.landed_bytes = 0  # right, or to be checked at the file's end
        self.copied_bytes = 0  # read from a source in this run, right or wrong
        self.resumed_bytes = 0  # of files that are right: there from an earlier run
        self.started = time.monotonic()
        self.by_source: dict[str, dict[str, int]] = {}
        self._current: dict[str, str] = {}  # file → source
        self._lock = threading.Lock()

    def land(self, count: int, *, copied: bool = True) -> None:
        with self._lock:
            self.landed_bytes += count
            if copied:
                self.copied_bytes += count

    def begin(self, file: str, source: str) -> None:
        with self._lock:
            self._current[file] = source

    def end(self, file: str, givers: dict[str, int], *, resumed: int = 0) -> None:
        """The file is right; these sources gave so many bytes of it."""
        with self._lock:
            self._current.pop(file, None)
            self.resumed_bytes += resumed
            for source, count in givers.items():
                entry = self.by_source.setdefault(source, {"files": 0, "bytes": 0})
                entry["files"] += 1
                entry["bytes"] += count

    def current(self) -> tuple[str, str] | None:
        """Of the files in work the one that was begun first, and its source."""
        with self._lock:
            return next(iter(self._current.items()), None)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started
