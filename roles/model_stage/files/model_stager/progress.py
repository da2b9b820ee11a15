"""A small file that says how far the work is; whole at each moment, at most five times a second."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from model_stager.manifest import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from model_stager.tally import Tally

INTERVAL_S = 0.2
WINDOW = 50  # the rate is that of the last ten seconds


class Reporter:
    """Writes the progress file from a thread of its own."""

    def __init__(self, path: Path, name: str, run: str) -> None:
        self._path = path
        self._name = name
        self._run = run
        self._seen: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    def write(self, state: str, tally: Tally) -> None:
        now, landed = time.monotonic(), tally.landed_bytes
        self._seen.append((now, tally.copied_bytes))
        first = self._seen[0]
        rate = (tally.copied_bytes - first[1]) / (now - first[0]) if now > first[0] else 0.0
        left = max(0, tally.total_bytes - landed)
        file, source = tally.current() or (None, None)
        write_whole(
            self._path,
            {
                "schema_version": 1,
                "model": self._name,
                "run": self._run,
                "state": state,
                "bytes": landed,
                "total_bytes": tally.total_bytes,
                "rate_bytes_s": round(rate),
                "seconds_left": round(left / rate, 1) if rate > 0 else None,
                "seconds": round(tally.seconds, 2),
                "source": source,
                "file": file,
            },
        )

    @contextlib.contextmanager
    def during(self, state: str, tally: Tally) -> Iterator[None]:
        """Report while the block runs."""
        ended = threading.Event()

        def report() -> None:
            while not ended.wait(INTERVAL_S):
                with contextlib.suppress(OSError):  # a full tmpfs is the copy's to report
                    self.write(state, tally)

        self.write(state, tally)
        thread = threading.Thread(target=report, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with contextlib.suppress(OSError):
                self.write(state, tally)
