"""Where things lie under the results folder, and how files are written there."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collector.errors import BusyError, CollectorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """The results folder. The collector never writes outside it."""

    root: Path

    @property
    def raw(self) -> Path:
        """Exact copies of what the nodes have: ``raw/<node>/<campaign>/``."""
        return self.root / "raw"

    @property
    def superseded(self) -> Path:
        """Earlier versions of files that a node has replaced since and did not keep itself."""
        return self.root / "superseded"

    @property
    def earlier(self) -> Path:
        """Whole copies of campaigns that were started anew on their node under the same id."""
        return self.root / "earlier"

    @property
    def quarantine(self) -> Path:
        """Files that must not be believed, each with its reason and origin."""
        return self.root / "quarantine"

    @property
    def incoming(self) -> Path:
        """Half-fetched files; whatever lies here may be deleted."""
        return self.root / ".incoming"

    @property
    def merged(self) -> Path:
        return self.root / "merged"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def recovery(self) -> Path:
        """Written by the playbook run: what was broken and repaired."""
        return self.root / "recovery.json"

    def relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the results folder for writing; a second collector gets a clear refusal."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / ".lock").open("a+")
        except OSError as exc:
            raise CollectorError(
                f"{self.root}: cannot write there ({exc.strerror}); give a writable folder with --results"
            ) from exc
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise BusyError(
                    f"{self.root}: another collector is writing there; wait for it to end and try again"
                ) from exc
            yield


def write_whole(path: Path, data: bytes | str) -> None:
    """Write a file so that a reader sees the old or the new content, never a part.

    A file that has the content already is left alone, so that its time says when it last changed.
    """
    blob = data.encode() if isinstance(data, str) else data
    if path.is_file() and path.stat().st_size == len(blob) and path.read_bytes() == blob:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as out:
            out.write(blob)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
