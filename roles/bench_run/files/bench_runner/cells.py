"""From a plan to its cells, in the order they are measured, and which of them can't fit."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bench_runner.plan import Agentic, Code, Concurrency, Context, Rate, Replay, WarmUp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench_runner.arrivals import Pattern
    from bench_runner.plan import Plan, TraceRequest

POINT_UNITS = {
    "code": "output_tokens",
    "context": "prompt_tokens",
    "concurrency": "clients",
    "rate": "requests_per_s",
    "replay": "speed_percent",
    "agentic": "turns",
}

# Part of a cell's identity: raise one when its traffic changes, so that its cells run again.
WORKLOAD_VERSIONS = {"code": 1, "context": 1, "concurrency": 1, "rate": 1, "replay": 1, "agentic": 1}


class Cell(Struct, frozen=True, kw_only=True):
    """Configuration x workload x point x repeat: the unit that is measured, resumed, skipped, reported."""

    configuration: str
    workload: str
    point: int
    repeat: int

    @property
    def name(self) -> str:
        return f"{self.configuration}.{self.workload}.{self.point}.r{self.repeat}"

    @property
    def title(self) -> str:
        """As a person says it; the first repeat needs no number."""
        again = f" (repeat {self.repeat})" if self.repeat > 1 else ""
        return f"{self.configuration} {self.workload}/{self.point}{again}"

    @property
    def point_unit(self) -> str:
        return POINT_UNITS[self.workload]


class Traffic(Struct, frozen=True, kw_only=True):
    """What is sent for a cell: `clients` at a time take `conversations` in turn, each of some turns."""

    clients: int
    conversations: int
    turns: int
    first_prompt_tokens: int
    turn_tokens: int
    output_tokens: int
    shared_tokens: int = 0  # the beginning that all prompts have
    rate: float | None = None  # requests a second of an open loop
    pattern: Pattern = "poisson"
    trace: tuple[
        TraceRequest, ...
    ] = ()  # each request's own time and lengths; the ones above are the largest

    @property
    def requests(self) -> int:
        return self.conversations * self.turns

    @property
    def largest_prompt(self) -> int:
        """As planned; an answer may become some tokens more or less as a part of the next prompt."""
        return self.first_prompt_tokens + (self.turns - 1) * (self.turn_tokens + self.output_tokens)


def expand(plan: Plan, turns: Mapping[str, object] | None = None) -> list[Cell]:
    """Every cell of the plan, in its order.

    `sweeps`: a configuration's cells stand together, as each change of server costs a load; each repeat goes
    through all points. `points`: the repeats of a point follow each other. `rounds`: each repeat goes through
    all configurations, at the price of a load each, so that a drift of the machine doesn't look like theirs.

    `turns`: the models of each configuration, where they take turns in memory. A round is then of the
    configurations with the same ones, as each change of models costs a copy.
    """
    repeats = range(1, plan.repeats + 1)
    named = [(workload, point) for workload, points in _points(plan) for point in points]
    within = _ORDERS[plan.order]
    rounds = [[repeat] for repeat in repeats] if plan.order == "rounds" else [list(repeats)]
    together = [list(some) for _, some in groupby(plan.configurations, key=(turns or {}).get)]
    return [
        Cell(configuration=configuration, workload=workload, point=point, repeat=repeat)
        for configurations in together
        for some in rounds
        for configuration in configurations
        for workload, point, repeat in within(named, some)
    ]


def quick_cells(plan: Plan) -> set[str]:
    """The names of the cells of the plan's quick campaign."""
    quick = plan.quick
    others = [name for name in plan.configurations if name != plan.baseline]
    configurations = set(quick.configurations or [plan.baseline, *others[:1]])
    points = {
        workload: set(getattr(quick.points, workload)) if quick.points else {there[0]}
        for workload, there in _points(plan)
    }
    return {
        cell.name
        for cell in expand(plan)
        if cell.configuration in configurations
        and cell.point in points[cell.workload]
        and cell.repeat <= quick.repeats
    }


def traffic(plan: Plan, workload: str, point: int) -> Traffic:
    shape = getattr(plan.workloads, workload)
    if isinstance(shape, Code):
        return _single(shape.concurrency, shape.requests, shape.prompt_tokens, point)
    if isinstance(shape, Context):
        return _single(shape.concurrency, shape.requests, point, shape.output_tokens)
    if isinstance(shape, Concurrency):
        single = _single(point, point * shape.requests_per_client, shape.prompt_tokens, shape.output_tokens)
        return msgspec.structs.replace(single, shared_tokens=shape.shared_prefix_tokens)
    if isinstance(shape, Rate):
        single = _single(1, point * shape.seconds, shape.prompt_tokens, shape.output_tokens)
        return msgspec.structs.replace(
            single, rate=float(point), pattern=shape.pattern, shared_tokens=shape.shared_prefix_tokens
        )
    if isinstance(shape, Replay):
        return _replayed(shape, point)
    if isinstance(shape, Agentic):
        return Traffic(
            clients=shape.conversations,
            conversations=shape.conversations,
            turns=point,
            first_prompt_tokens=shape.first_prompt_tokens,
            turn_tokens=shape.turn_tokens,
            output_tokens=shape.output_tokens,
        )
    raise KeyError(workload)


def definition(plan: Plan, workload: str) -> dict[str, Any]:
    """What makes this workload the same one: its parameters without the points, the seed, its version."""
    shape = msgspec.to_builtins(getattr(plan.workloads, workload))
    shape.pop("points")
    # A cell that was measured before a plan could say these has the same identity still.
    if not shape.get("shared_prefix_tokens", 1):
        del shape["shared_prefix_tokens"]
    warm_up = {} if plan.warm_up == WarmUp() else {"warm_up": msgspec.to_builtins(plan.warm_up)}
    return {"kind": workload, "version": WORKLOAD_VERSIONS[workload], "seed": plan.seed, **shape, **warm_up}


def why_not_fitting(
    plan: Plan, cell: Cell, context_tokens: int | None, *, draft_tokens: int = 0
) -> str | None:
    """A sentence with the largest that fits, or None where the cell fits or the context isn't known.

    All numbers are the model's own tokens: prompts are made to their length by the server's tokenizer.
    `draft_tokens` are reserved: a verify step writes that many beyond the last token.
    """
    if context_tokens is None:
        return None
    sent = traffic(plan, cell.workload, cell.point)
    needed = sent.largest_prompt + sent.output_tokens + draft_tokens
    if needed <= context_tokens:
        return None
    largest = _largest_point(plan, cell, context_tokens - draft_tokens)
    unit = cell.point_unit.replace("_", " ")
    fitting = f"the largest that fits is {largest} {unit}" if largest else f"no number of {unit} fits"
    reserve = f" + draft reserve {draft_tokens}" if draft_tokens else ""
    return (
        f"prompt {sent.largest_prompt} + output {sent.output_tokens}{reserve} = {needed} tokens, "
        f"the context is {context_tokens}; {fitting}"
    )


def _largest_point(plan: Plan, cell: Cell, context_tokens: int) -> int | None:
    sent = traffic(plan, cell.workload, cell.point)
    if cell.workload == "code":
        largest = context_tokens - sent.first_prompt_tokens
    elif cell.workload == "context":
        largest = context_tokens - sent.output_tokens
    elif cell.workload == "agentic":
        a_turn = sent.turn_tokens + sent.output_tokens
        largest = 1 + (context_tokens - sent.first_prompt_tokens - sent.output_tokens) // a_turn
    else:
        largest = 0  # each client's request is too long, however many there are
    return largest if largest > 0 else None


def _sweeps(named: list[tuple[str, int]], repeats: list[int]) -> Iterator[tuple[str, int, int]]:
    for repeat in repeats:
        for workload, point in named:
            yield workload, point, repeat


def _points_together(named: list[tuple[str, int]], repeats: list[int]) -> Iterator[tuple[str, int, int]]:
    for workload, point in named:
        for repeat in repeats:
            yield workload, point, repeat


_ORDERS = {"sweeps": _sweeps, "points": _points_together, "rounds": _sweeps}


def _points(plan: Plan) -> Iterator[tuple[str, list[int]]]:
    for workload in POINT_UNITS:
        shape = getattr(plan.workloads, workload)
        if shape is not None:
            yield workload, shape.points


def _replayed(shape: Replay, percent: int) -> Traffic:
    trace = tuple(
        msgspec.structs.replace(request, at_s=request.at_s * 100 / percent)
        for request in sorted(shape.requests, key=lambda request: request.at_s)
    )
    largest = max(trace, key=lambda request: request.prompt_tokens + request.output_tokens)
    single = _single(1, len(trace), largest.prompt_tokens, largest.output_tokens)
    return msgspec.structs.replace(single, trace=trace, shared_tokens=largest.shared_prefix_tokens)


def _single(clients: int, requests: int, prompt_tokens: int, output_tokens: int) -> Traffic:
    """Requests that stand alone: conversations of one turn."""
    return Traffic(
        clients=clients,
        conversations=requests,
        turns=1,
        first_prompt_tokens=prompt_tokens,
        turn_tokens=0,
        output_tokens=output_tokens,
    )
