"""The plan's shape: what a campaign measures, as it stands in plan.yml."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9_-]*$"  # no dot: it separates the parts of a cell's name

# Beyond any use, and within all that a number is written to: JSON, the kernel's timers.
MOST = 10_000_000

Count = Annotated[int, Meta(ge=1, le=MOST)]
CountOrNone = Annotated[int, Meta(ge=0, le=MOST)]
Seconds = Annotated[float, Meta(gt=0, le=MOST)]
Name = Annotated[str, Meta(pattern=NAME_PATTERN, max_length=60)]
CampaignName = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60)]
QuirkName = Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$", max_length=60)]
Text = Annotated[str, Meta(min_length=1)]
Points = Annotated[list[Count], Meta(min_length=1)]

WorkloadName = Literal["code", "context", "concurrency", "rate", "replay", "agentic"]

PLAN_VERSION = 1


class Code(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fixed output lengths from a short prompt; a point is a number of output tokens."""

    points: Points
    requests: Count = 2
    concurrency: Count = 1
    prompt_tokens: Count = 48


class Context(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A short answer to a long prompt; a point is a number of prompt tokens."""

    points: Points
    output_tokens: Count = 16
    requests: Count = 2
    concurrency: Count = 1


class Concurrency(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A closed loop: a client sends again when its request has ended; a point is a number of clients."""

    points: Points
    prompt_tokens: Count = 64
    output_tokens: Count = 32
    requests_per_client: Count = 2
    shared_prefix_tokens: CountOrNone = 0  # of each prompt: the same in all


class Rate(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An open loop: requests come whether the server keeps up or not; a point is how many a second."""

    points: Points
    seconds: Annotated[int, Meta(ge=2, le=MOST)] = 30
    pattern: Literal["poisson", "constant"] = "poisson"
    prompt_tokens: Count = 64
    output_tokens: Count = 32
    shared_prefix_tokens: CountOrNone = 0


class TraceRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One request of a recorded load: when it came, and how long prompt and answer were."""

    at_s: Annotated[float, Meta(ge=0, le=MOST)]
    prompt_tokens: Count
    output_tokens: Count
    shared_prefix_tokens: CountOrNone = 0


class Replay(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A recorded load sent again, with prompts of our own; a point is its speed in percent."""

    points: Points
    requests: Annotated[list[TraceRequest], Meta(min_length=1)]


class Agentic(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conversations whose prompt grows by each answer and each turn; a point is a number of turns."""

    points: Points
    first_prompt_tokens: Count = 64
    turn_tokens: Count = 24
    output_tokens: Count = 24
    conversations: Count = 1


class Workloads(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: Code | None = None
    context: Context | None = None
    concurrency: Concurrency | None = None
    rate: Rate | None = None
    replay: Replay | None = None
    agentic: Agentic | None = None


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When waiting ends: for a server to be ready, for a whole cell, for the next byte of a stream."""

    server_ready_s: Seconds = 1800
    cell_s: Seconds = 1800
    stall_s: Seconds = 120


class Tolerance(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a cell may have and be ok still: failed requests, and a client that is wrong by so much."""

    failed_requests: CountOrNone = 0
    client_ms: Annotated[float, Meta(ge=0, le=MOST)] = 2.0  # where 2 % of what is measured is less


class Canary(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The generation each started server must do right before it is measured."""

    output_tokens: Annotated[int, Meta(ge=32, le=MOST)] = 32
    floor_tps: Annotated[float, Meta(ge=0, le=MOST)] = 1.0


class WarmUp(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Requests of a cell's own shape before it is measured: what a server does only once is done then."""

    requests: Count = 1
    output_tokens: Count = 16  # at most; a cell that asks for less gets less


class QuickPoints(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Points of the plan by workload; a workload that isn't named is left out."""

    code: list[Count] = field(default_factory=list)
    context: list[Count] = field(default_factory=list)
    concurrency: list[Count] = field(default_factory=list)
    rate: list[Count] = field(default_factory=list)
    replay: list[Count] = field(default_factory=list)
    agentic: list[Count] = field(default_factory=list)


class Quick(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A smaller campaign on demand. Left out: the baseline and one more, the first point of each workload."""

    configurations: list[Name] = field(default_factory=list)
    points: QuickPoints | None = None
    repeats: Count = 1


class Quirk(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A known fault: the cells it covers are skipped with its name. All scopes that are given must match."""

    name: QuirkName
    reason: Text
    verdict: Literal["skip", "warn"] = "skip"
    evidence: Text | None = None
    source: Text | None = None
    expires: Text | None = None  # the last day, as 2027-01-31
    configurations: list[Name] = field(default_factory=list)
    workloads: list[WorkloadName] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)
    when: Text | None = None  # a condition on flags: quirks/expression.py
    engines: list[str] = field(default_factory=list)
    engine_builds: list[str] = field(default_factory=list)  # a quirk ends with the builds it was seen on
    builds: Text | None = None  # a range: >= 0.5.20, < 0.6
    drivers: Text | None = None
    gpu_models: list[str] = field(default_factory=list)
    gpu_architectures: list[str] = field(default_factory=list)


class Plan(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    schema_version: Literal[1]
    name: CampaignName
    baseline: Name
    configurations: Annotated[list[Name], Meta(min_length=1)]
    workloads: Workloads
    repeats: Count = 1
    order: Literal["sweeps", "points", "rounds"] = "sweeps"  # cells.expand says what each means
    seed: Annotated[int, Meta(ge=0, le=2**53)] = 1
    models: list[str] = field(default_factory=list)  # the only ones that may be measured; empty: all
    nodes: list[str] = field(default_factory=list)  # the only ones it is measured on; empty: all
    warm_up: WarmUp = field(default_factory=WarmUp)
    limits: Limits = field(default_factory=Limits)
    tolerance: Tolerance = field(default_factory=Tolerance)
    attempts: Count = 2
    canary: Canary = field(default_factory=Canary)
    quirks: list[Quirk] = field(default_factory=list)
    deadline: Text | None = None  # after it no new cell starts: deadline.py
    quick: Quick = field(default_factory=Quick)
