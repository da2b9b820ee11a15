"""The files a cell leaves. The contract is collector/schemas/cell.schema.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import zstandard
from msgspec import Struct

from bench_runner.files import sha256_of, write_whole
from bench_runner.fingerprint import Fingerprint  # noqa: TC001 - msgspec reads types when it runs
from bench_runner.journal import Reason  # noqa: TC001 - msgspec reads types when it runs
from bench_runner.metrics import Metrics  # noqa: TC001 - msgspec reads types when it runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CELL_VERSION = 1
REQUEST_TEXT_LIMIT = 120  # of a failure's detail: a record stays under 400 bytes


class RequestCounts(Struct, frozen=True, kw_only=True):
    planned: int
    ok: int
    failed: int


class Check(Struct, frozen=True, kw_only=True):
    name: str
    passed: bool
    detail: str


class FileRef(Struct, frozen=True, kw_only=True):
    name: str
    size_bytes: int
    sha256: str


class CellFile(Struct, frozen=True, kw_only=True):
    schema: str
    schema_version: int
    campaign: str
    node: str
    host: str
    cell: str
    configuration: str
    baseline: bool
    workload: str
    point: int
    point_unit: str
    repeat: int
    attempt: int
    status: str
    reasons: list[Reason]
    started_at: str
    ended_at: str
    duration_s: float
    content_hash: str
    fingerprint: Fingerprint
    requests: RequestCounts
    checks: list[Check]
    metrics: Metrics | None
    files: dict[str, FileRef]
    evidence: dict[str, Any] | None


class RequestRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request. Times are since the cell's first send; `why` is the reason code of a failed one."""

    index: int
    conversation: int
    turn: int
    ok: bool
    why: str | None = None
    detail: str | None = None
    due_ms: float | None = None  # in an open loop
    sent_ms: float | None = None
    first_ms: float | None = None
    last_ms: float | None = None
    end_ms: float | None = None
    chunks: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    verify_steps: int | None = None
    draft_tokens: int | None = None
    accepted_drafts: int | None = None
    text_sha256: str | None = None  # its first 16 digits: enough to compare greedy answers


class Folder:
    """A campaign's folder and where things lie in it."""

    def __init__(self, root: Path, *, plan: Path | None = None, environment: Path | None = None) -> None:
        self.root = root
        self.plan = plan or root / "plan.yml"
        self.environment = environment or root / "environment.json"
        self.journal = root / "journal.jsonl"
        self.status = root / "status.json"
        self.status_text = root / "STATUS.md"
        self.cells = root / "cells"
        self.superseded = root / "superseded"
        self.quirks = root.parent / "quirks.json"  # the node's, for all its campaigns

    def cell(self, name: str) -> Path:
        return self.cells / f"{name}.json"

    def requests(self, name: str) -> Path:
        return self.cells / f"{name}.requests.jsonl.zst"


def encode_cell(cell: CellFile) -> bytes:
    return msgspec.json.format(msgspec.json.encode(cell), indent=1) + b"\n"


def decode_cell(data: bytes) -> CellFile:
    return msgspec.json.decode(data, type=CellFile)


def write_requests(path: Path, records: Sequence[RequestRecord]) -> FileRef:
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    data = zstandard.ZstdCompressor(level=9).compress(lines)
    write_whole(path, data)
    return FileRef(name=path.name, size_bytes=len(data), sha256=sha256_of(data))


def read_requests(path: Path) -> list[RequestRecord]:
    data = zstandard.ZstdDecompressor().decompress(path.read_bytes())
    return [msgspec.json.decode(line, type=RequestRecord) for line in data.splitlines()]


def set_aside(folder: Folder, name: str) -> None:
    """Keep a cell's earlier file before a new attempt takes its name: an old result is never destroyed."""
    path = folder.cell(name)
    try:
        old = decode_cell(path.read_bytes())
    except FileNotFoundError:
        return
    except (OSError, msgspec.DecodeError):
        mark = "unreadable"
    else:
        mark = f"{old.content_hash[:8]}.a{old.attempt}"
    folder.superseded.mkdir(exist_ok=True)
    for found in (folder.requests(name), path):
        if found.exists():
            ending = found.name[len(name) :]
            found.replace(folder.superseded / f"{name}.{mark}{ending}")
