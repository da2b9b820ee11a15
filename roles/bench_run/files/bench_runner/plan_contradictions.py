"""What is wrong with a plan though each of its keys is right."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import msgspec

from bench_runner.cells import traffic
from bench_runner.deadline import DeadlineError, check_deadline
from bench_runner.plan import Concurrency, Rate, Replay, TraceRequest
from bench_runner.plan_words import nearest
from bench_runner.quirks.expression import ExpressionError, parse
from bench_runner.quirks.versions import RangeError, check_range

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from bench_runner.plan import Plan, Quirk

# A prompt's own part: its nonce and some text to come out at the exact length.
OWN_TOKENS = 24
# Of one cell: each client is an open connection, each request a prompt that is made before the first is sent.
MOST_CLIENTS = 4096
MOST_REQUESTS = 100_000
_SCOPES = ("configurations", "flags", "when", "models", "workloads")


def contradictions(plan: Plan, known: Collection[str] | None = None) -> Iterator[str]:
    """`known` are the deployed configurations, where they are known."""
    yield from _configuration_problems(plan, known)
    workloads = msgspec.structs.asdict(plan.workloads)
    if not any(workloads.values()):
        yield f"workloads: found none, needed at least one of {', '.join(workloads)}"
    for name, workload in workloads.items():
        yield from _twice(f"workloads.{name}.points", workload.points if workload else [])
        yield from _too_much(plan, name, workload.points if workload else [])
        yield from _prefix_problem(f"workloads.{name}", workload)
    yield from _quick_problems(plan)
    if plan.deadline is not None:
        try:
            check_deadline(plan.deadline)
        except DeadlineError as exc:
            yield f"deadline: found {plan.deadline!r}, {exc}"
    names = [quirk.name for quirk in plan.quirks]
    for index, quirk in enumerate(plan.quirks):
        where = f"quirks[{index}]"
        if quirk.name in names[:index]:
            yield f"{where}.name: {quirk.name!r} stands there twice"
        yield from _quirk_problems(where, quirk)
        # Quirks are kept for the whole fleet, so one may name a configuration that this plan leaves out.
        allowed = {*plan.configurations, *(known or quirk.configurations)}
        for configuration in sorted(set(quirk.configurations) - allowed):
            close = nearest(configuration, allowed)
            yield f"{where} ({quirk.name}): configuration {configuration!r} is not deployed; {close}"


def other_models(plan: Plan, models: Mapping[str, str]) -> Iterator[str]:
    """Configurations that serve a model which the plan doesn't name; `models` is theirs, by configuration."""
    for index, name in enumerate(plan.configurations):
        model = models.get(name)
        if plan.models and model is not None and model not in plan.models:
            listed = ", ".join(plan.models)
            yield f"configurations[{index}]: {name!r} serves {model}, the plan's models are {listed}"


def _configuration_problems(plan: Plan, known: Collection[str] | None) -> Iterator[str]:
    for index, name in enumerate(plan.configurations):
        if name in plan.configurations[:index]:
            yield f"configurations[{index}]: {name!r} stands there twice"
        if known is not None and name not in known:
            yield f"configurations[{index}]: {name!r} is not deployed; {nearest(name, known)}"
    if plan.baseline not in plan.configurations:
        close = nearest(plan.baseline, plan.configurations)
        yield f"baseline: {plan.baseline!r} is none of the configurations; {close}"


def _quick_problems(plan: Plan) -> Iterator[str]:
    quick = plan.quick
    for index, name in enumerate(quick.configurations):
        if name not in plan.configurations:
            close = nearest(name, plan.configurations)
            yield f"quick.configurations[{index}]: {name!r} is none of the configurations; {close}"
    if quick.repeats > plan.repeats:
        yield f"quick.repeats: found {quick.repeats}, the whole plan has {plan.repeats}"
    if quick.points is None:
        return
    chosen = msgspec.structs.asdict(quick.points)
    if not any(chosen.values()):
        yield "quick.points: found none; leave it out for the first point of each workload"
    for name, points in chosen.items():
        workload = getattr(plan.workloads, name)
        there = workload.points if workload else []
        for index, point in enumerate(points):
            if point not in there:
                words = (
                    f"known are {', '.join(map(str, there))}" if there else "the plan has no such workload"
                )
                yield f"quick.points.{name}[{index}]: {point} is none of the plan's points; {words}"


def _quirk_problems(where: str, quirk: Quirk) -> Iterator[str]:
    if not any(getattr(quirk, scope) for scope in _SCOPES):
        yield f"{where} ({quirk.name}): no scope; needed {' or '.join(_SCOPES[:3])}"
    try:
        if quirk.when is not None:
            parse(quirk.when)
    except ExpressionError as exc:
        yield f"{where}.when: {exc}"
    yield from _range_problem(f"{where}.builds", quirk.builds)
    yield from _range_problem(f"{where}.drivers", quirk.drivers)
    if quirk.expires is not None:
        try:
            date.fromisoformat(quirk.expires)
        except ValueError:
            yield f"{where}.expires: found {quirk.expires!r}, needed a day such as 2027-01-31"


def _range_problem(where: str, wanted: str | None) -> Iterator[str]:
    try:
        if wanted is not None:
            check_range(wanted)
    except RangeError as exc:
        yield f"{where}: {exc}"


def _prefix_problem(where: str, asked: object) -> Iterator[str]:
    if isinstance(asked, Replay):
        for index, request in enumerate(asked.requests):
            yield from _prefix_problem(f"{where}.requests[{index}]", request)
    if not isinstance(asked, (Concurrency, Rate, TraceRequest)) or not asked.shared_prefix_tokens:
        return
    most = asked.prompt_tokens - OWN_TOKENS
    if asked.shared_prefix_tokens > most:
        yield (
            f"{where}.shared_prefix_tokens: found {asked.shared_prefix_tokens}, needed at most "
            f"{max(most, 0)}: {OWN_TOKENS} of {asked.prompt_tokens} prompt tokens are each prompt's own"
        )


def _too_much(plan: Plan, workload: str, points: list[int]) -> Iterator[str]:
    for index, point in enumerate(points):
        sent = traffic(plan, workload, point)
        for number, what, most in (
            (sent.clients, "connections at once", MOST_CLIENTS),
            (sent.requests, "requests in one cell", MOST_REQUESTS),
        ):
            if number > most:
                where = f"workloads.{workload}.points[{index}]"
                yield f"{where}: {point} would make {number} {what}, needed at most {most}"


def _twice(where: str, values: list[int]) -> Iterator[str]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield f"{where}[{index}]: {value} stands there twice"
