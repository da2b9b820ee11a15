"""journal.jsonl, the truth of a campaign: one event a line, on disk before the next step is taken."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bench_runner.errors import JournalError
from bench_runner.files import sha256_of, sync_folder, write_whole

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL_VERSION = 1


class Reason(Struct, frozen=True):
    """Why a cell isn't ok: a code for programs, a sentence for people."""

    code: str
    detail: str


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `detail` carries what only people and the next run's decisions want."""

    schema_version: int
    seq: int
    at: str
    boot_id: str
    run: str
    event: str
    cell: str | None = None
    configuration: str | None = None
    content_hash: str | None = None
    status: str | None = None
    reasons: list[Reason] | None = None
    file: str | None = None
    sha256: str | None = None
    detail: dict[str, Any] | None = None


class Journal:
    """Opened by the one runner that holds the folder's lock."""

    def __init__(self, path: Path, *, boot_id: str, run: str) -> None:
        self.path = path
        self.boot_id = boot_id
        self.run = run
        self.events: list[Event] = []
        repaired = self._load()
        try:
            fresh = not path.exists()
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if fresh:
                sync_folder(path.parent)
        except OSError as exc:
            raise JournalError(f"{path}: {exc.strerror}") from exc
        if repaired:
            self.append("journal_repaired", detail=repaired)

    def append(self, event: str, **fields: Any) -> Event:  # noqa: ANN401 - Event's own types check them
        """Write one event; it is on the disk when this returns."""
        entry = Event(
            schema_version=JOURNAL_VERSION,
            seq=self.events[-1].seq + 1 if self.events else 1,
            at=utc_now(),
            boot_id=self.boot_id,
            run=self.run,
            event=event,
            **fields,
        )
        line = _encode(entry)
        before = os.fstat(self._handle).st_size
        try:
            if os.write(self._handle, line) != len(line):
                os.ftruncate(self._handle, before)
                raise JournalError(
                    f"{self.path}: only a part of an event could be written; is the disk full?"
                )
            os.fdatasync(self._handle)
        except OSError as exc:
            os.ftruncate(self._handle, before)
            raise JournalError(
                f"{self.path}: {exc.strerror}; nothing was lost, make room and run again"
            ) from exc
        self.events.append(entry)
        return entry

    def close(self) -> None:
        os.close(self._handle)

    def _load(self) -> dict[str, Any] | None:
        """Read the events; what a power cut left of a line is put aside and said."""
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as exc:
            raise JournalError(f"{self.path}: {exc.strerror}") from exc
        self.events, damaged = split_events(data, source=str(self.path))
        if not damaged:
            return None
        bad = b"\n".join(damaged)
        aside = self.path.with_name(f"{self.path.stem}.damaged-{sha256_of(bad)[:12]}")
        write_whole(aside, bad)
        write_whole(self.path, b"".join(_encode(event) for event in self.events))
        return {"kept_as": aside.name, "size_bytes": len(bad), "lines": len(damaged)}


def read_events(path: Path) -> list[Event]:
    """For those who only look: damaged lines are left out, nothing is repaired."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise JournalError(f"{path}: {exc.strerror}") from exc
    return split_events(data, source=str(path))[0]


def split_events(data: bytes, *, source: str) -> tuple[list[Event], list[bytes]]:
    """The good lines and the damaged ones. A last line without its end was never finished."""
    lines = data.split(b"\n")
    tail = lines.pop()
    damaged: list[bytes] = []
    events: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            event = _DECODER.decode(line)
        except msgspec.DecodeError:
            damaged.append(line)
            continue
        if event.schema_version > JOURNAL_VERSION:
            raise JournalError(
                f"{source}: line {number} has schema_version {event.schema_version}, newer than "
                f"{JOURNAL_VERSION}; update the runner"
            )
        events.append(event)
    return events, [*damaged, tail] if tail else damaged


def utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encode(event: Event) -> bytes:
    return msgspec.json.encode(event) + b"\n"


_DECODER = msgspec.json.Decoder(Event)
