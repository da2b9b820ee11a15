"""What the workers have done so far: written by them, read by the progress file and the result."""

from __future__ import annotations

import threading
import time


class Tally:
    """Counts bytes and files; safe to use from all workers."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.landed_bytes = 0  # right, or to be checked at the file's end
        self.copied_bytes = 0  # read from a source in this run
        self.started = time.monotonic()
        self.by_source: dict[str, dict[str, int]] = {}
        self._current: dict[int, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def land(self, count: int, *, copied: bool = True) -> None:
        with self._lock:
            self.landed_bytes += count
            if copied:
                self.copied_bytes += count

    def begin(self, file: str, source: str) -> None:
        with self._lock:
            self._current[threading.get_ident()] = (file, source)

    def end(self, source: str | None, size: int) -> None:
        with self._lock:
            self._current.pop(threading.get_ident(), None)
            if source is not None:
                entry = self.by_source.setdefault(source, {"files": 0, "bytes": 0})
                entry["files"] += 1
                entry["bytes"] += size

    def current(self) -> tuple[str, str] | None:
        """A file in work and its source."""
        with self._lock:
            return next(iter(self._current.values()), None)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started
