"""Result files as frozen records. ``schemas/*.json`` are the contract; a test holds these to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

# History: 1 - first version.
CELL_SCHEMA_VERSION = 1
JOURNAL_SCHEMA_VERSION = 1
STATUS_SCHEMA_VERSION = 1

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=120)]
CellName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*\.[a-z]+\.[0-9]+\.r[0-9]+\Z")]
Utc = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z\Z")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Code = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*\Z")]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]

CellStatus = Literal["ok", "partial", "failed", "crashed", "skipped", "interrupted"]
Workload = Literal["code", "context", "concurrency", "rate", "replay", "agentic"]
PointUnit = Literal["output_tokens", "prompt_tokens", "clients", "requests_per_s", "speed_percent", "turns"]


class Reason(Struct, frozen=True, forbid_unknown_fields=True):
    code: Code
    detail: str


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    passed: bool
    detail: str


class Requests(Struct, frozen=True, forbid_unknown_fields=True):
    planned: Count
    ok: Count
    failed: Count


class Companion(Struct, frozen=True, forbid_unknown_fields=True):
    """A file beside the cell file, such as the record of each request."""

    name: str
    size_bytes: Count
    sha256: Sha256


class Fingerprint(Struct, frozen=True, forbid_unknown_fields=True):
    identity: dict[str, Any]
    comparability: dict[str, Any]
    recorded: dict[str, Any]


class Distribution(Struct, frozen=True, forbid_unknown_fields=True):
    """A percentile that its sample is too small for is None."""

    n: Positive
    mean: float
    min: float
    max: float
    p50: float
    p90: float | None
    p99: float | None


class Metrics(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    chunk_gap_ms: Distribution | None
    e2e_ms: Distribution | None
    output_tps: Annotated[float, Meta(gt=0)]
    output_tps_per_user: Annotated[float, Meta(gt=0)]
    prompt_tokens: Positive
    completion_tokens: Positive
    wall_s: Annotated[float, Meta(gt=0)]
    accept_length: Annotated[float, Meta(ge=1)] | None
    verify_steps: Count | None
    draft_tokens: Count | None
    accepted_drafts: Count | None
    cached_tokens: Count | None
    # Results from before these were measured don't have them.
    ttft_content_ms: Distribution | None = None
    ttft_due_ms: Distribution | None = None
    stalls: Count | None = None
    output_tps_steady: Annotated[float, Meta(gt=0)] | None = None


class Cell(Struct, frozen=True, forbid_unknown_fields=True):
    """One measured cell: configuration x workload x point x repeat."""

    schema: Literal["recover-and-bench/cell"]
    schema_version: Literal[1]
    campaign: Name
    node: Name
    host: Name
    cell: CellName
    configuration: Name
    baseline: bool
    workload: Workload
    point: Positive
    point_unit: PointUnit
    repeat: Positive
    attempt: Positive
    status: CellStatus
    reasons: tuple[Reason, ...]
    started_at: Utc
    ended_at: Utc
    duration_s: Annotated[float, Meta(ge=0)]
    content_hash: Sha256
    fingerprint: Fingerprint
    requests: Requests
    checks: tuple[Check, ...]
    metrics: Metrics | None
    files: dict[str, Companion]
    evidence: dict[str, Any] | None


class RequestRecord(Struct, frozen=True):
    """One request of a cell. Times are milliseconds since the cell's first send."""

    index: Count
    conversation: Count
    turn: Count
    ok: bool
    why: Code | None = None
    detail: str | None = None
    due_ms: float | None = None
    sent_ms: float | None = None
    first_ms: float | None = None
    last_ms: float | None = None
    end_ms: float | None = None
    chunks: Count | None = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    finish_reason: str | None = None
    verify_steps: Count | None = None
    draft_tokens: Count | None = None
    accepted_drafts: Count | None = None
    text_sha256: str | None = None


class Event(Struct, frozen=True):
    """One line of a campaign's journal. Unknown keys are left for newer writers of the same version."""

    schema_version: Literal[1]
    seq: Positive
    at: str
    boot_id: str
    run: str
    event: Literal[
        "run_started",
        "cell_started",
        "cell_ended",
        "cell_skipped",
        "models_staged",
        "server_starting",
        "server_ready",
        "server_stopped",
        "server_crashed",
        "server_degraded",
        "journal_repaired",
        "run_ended",
    ]
    cell: str | None = None
    configuration: str | None = None
    content_hash: Sha256 | None = None
    status: CellStatus | None = None
    reasons: tuple[Reason, ...] = ()
    file: str | None = None
    sha256: Sha256 | None = None
    detail: dict[str, Any] | None = None


class Current(Struct, frozen=True):
    """What a running campaign is doing."""

    cell: str
    position: int
    total: int
    phase: str
    started_at: str
    elapsed_s: float
    remaining_s: float | None
    output_tps: float | None


class Todo(Struct, frozen=True, forbid_unknown_fields=True):
    content: str
    priority: Literal["high", "medium", "low"]
    status: Literal["pending", "in_progress", "completed", "skipped", "failed"]
    cell: str
    reason: str


class QuirkNote(Struct, frozen=True, forbid_unknown_fields=True):
    """A known fault that holds cells of the campaign back, or was seen in it."""

    name: str
    state: Literal["planned", "proposed", "active", "rejected", "retired"]
    cells: Count
    sentence: str
    changed: bool


class Status(Struct, frozen=True, forbid_unknown_fields=True):
    """A campaign's status.json."""

    schema: Literal["recover-and-bench/status"]
    schema_version: Literal[1]
    campaign: str
    node: str
    state: Literal["running", "finished", "stopped", "failed"]
    updated_at: str
    run: str
    message: str
    current: Current | None
    counts: dict[str, Count]
    kept: Count
    todos: tuple[Todo, ...]
    quirks: tuple[QuirkNote, ...] = ()
