"""One cell against a server that is up: prompts, warm-up, load, checks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bench_runner import checks
from bench_runner.arrivals import schedule
from bench_runner.cells import traffic
from bench_runner.client.verdict import FORETELLS_DEATH, judge
from bench_runner.errors import ServerError
from bench_runner.files import sha256_of
from bench_runner.journal import Reason
from bench_runner.load import Load, Script
from bench_runner.metrics import Measured, Metrics, metrics
from bench_runner.open_load import OpenLoad
from bench_runner.records import REQUEST_TEXT_LIMIT, Check, RequestCounts, RequestRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench_runner.cells import Cell, Traffic
    from bench_runner.load import Outcome, Progress
    from bench_runner.plan import Plan
    from bench_runner.prompts import PromptMaker
    from bench_runner.server.lifecycle import Server

# After such an answer it is asked whether the server still lives, and still generates.
SUSPICIOUS = FORETELLS_DEATH | {"timed_out", "cell_timed_out"}


class Result(Struct, frozen=True, kw_only=True):
    status: str
    reasons: list[Reason]
    checks: list[Check]
    counts: RequestCounts
    metrics: Metrics | None
    records: list[RequestRecord]
    evidence: dict[str, Any] | None = None
    client: dict[str, Any] | None = None  # what the client says of itself
    degraded: bool = False  # the server lives and can't generate any more


async def measure(
    plan: Plan,
    cell: Cell,
    server: Server,
    prompts: PromptMaker,
    *,
    on_phase: Callable[[str, Progress | None], None],
) -> Result:
    """Never raises for what the server does; a cell always gets a status."""
    sent = traffic(plan, cell.workload, cell.point)
    on_phase("warm_up", None)
    before = await server.show()
    if await server.has_died():
        raise ServerError("server_replaced", f"another server process runs: {before.sentence}")
    try:
        scripts = await asyncio.to_thread(_scripts, cell, sent, prompts)
        await _warm_up(plan, cell, sent, server, prompts)
    except ServerError as exc:
        return await _before_the_first(exc, server, prompts, planned=sent.requests)

    load = _load(plan, cell, sent, scripts, server)
    on_phase("measuring", load.progress)
    outcomes = await load.run()

    suspicious = any(outcome.fault and outcome.fault.code in SUSPICIOUS for outcome in outcomes)
    died = load.server_died or await server.has_died(patient=suspicious)
    records = _records(outcomes, server)
    failed = sum(1 for outcome in outcomes if outcome.fault)
    counts = RequestCounts(planned=sent.requests, ok=len(outcomes) - failed, failed=failed)
    after = await server.show()
    verdict = checks.verdict(
        outcomes,
        checks.Observed(
            before=before.identity,
            after=after.identity if after.is_up else None,
            health=load.health,
            sending=load.sending(),
        ),
        planned=sent.requests,
        tolerance=plan.tolerance,
    )
    if died:
        evidence = await server.evidence()
        crash = Reason("server_crashed", f"{in_words(evidence)} ({after.sentence})")
        reasons = [crash, *_without(verdict.reasons, "server_replaced")]
        return Result(
            status="crashed",
            reasons=reasons,
            checks=verdict.checks,
            counts=counts,
            metrics=None,
            records=records,
            evidence=evidence,
            client=verdict.client,
        )
    degraded = await server.why_degraded(prompts) if suspicious else None
    if degraded:
        return Result(
            status=verdict.status,
            reasons=[Reason("server_degraded", degraded), *verdict.reasons],
            checks=verdict.checks,
            counts=counts,
            metrics=None,
            records=records,
            evidence=await server.evidence(),
            client=verdict.client,
            degraded=True,
        )
    measured = [
        Measured(
            stream=outcome.stream,
            speculation=server.engine.speculation(outcome.stream),
            due_ns=outcome.due_ns,
        )
        for outcome in outcomes
        if outcome.stream and not outcome.fault
    ]
    return Result(
        status=verdict.status,
        reasons=verdict.reasons,
        checks=verdict.checks,
        counts=counts,
        metrics=metrics(measured, doubted=verdict.doubted) if verdict.status == "ok" else None,
        records=records,
        client=verdict.client,
    )


async def _before_the_first(
    exc: ServerError, server: Server, prompts: PromptMaker, *, planned: int
) -> Result:
    """Prompts or warm-up failed: the server is dead, can't generate, or answers wrong."""
    died = await server.has_died(patient=True)
    said = f"before the first request: {exc.detail}"
    if died:
        evidence = await server.evidence()
        reason = Reason("server_crashed", f"{said}; {in_words(evidence)}")
        return failure("crashed", [reason], planned=planned, evidence=evidence)
    degraded = await server.why_degraded(prompts)
    reasons = [Reason(exc.code, said)]
    if degraded is None:
        return failure("failed", reasons, planned=planned)
    evidence = await server.evidence()
    reasons.insert(0, Reason("server_degraded", degraded))
    return msgspec.structs.replace(
        failure("failed", reasons, planned=planned, evidence=evidence), degraded=True
    )


def in_words(evidence: dict[str, Any]) -> str:
    """The crash's name and its sentence, for a reason."""
    return f"{evidence.get('signature', 'unknown')}: {evidence.get('sentence') or evidence.get('error', '')}"


def failure(
    status: str, reasons: list[Reason], *, planned: int = 0, evidence: dict[str, Any] | None = None
) -> Result:
    """A cell without a single request sent: all that were planned failed."""
    return Result(
        status=status,
        reasons=reasons,
        checks=[],
        counts=RequestCounts(planned=planned, ok=0, failed=planned),
        metrics=None,
        records=[],
        evidence=evidence,
    )


def _load(plan: Plan, cell: Cell, sent: Traffic, scripts: list[Script], server: Server) -> Load:
    if sent.trace:
        due_ns = [int((request.at_s - sent.trace[0].at_s) * 1e9) for request in sent.trace]
        return OpenLoad(sent, scripts, server, plan.limits, due_ns=due_ns)
    if sent.rate is None:
        return Load(sent, scripts, server, plan.limits)
    seed = f"{plan.seed}/{cell.workload}/{cell.point}/{cell.repeat}"
    due_ns = schedule(sent.pattern, rate=sent.rate, requests=sent.requests, seed=seed)
    return OpenLoad(sent, scripts, server, plan.limits, due_ns=due_ns)


def _scripts(cell: Cell, sent: Traffic, prompts: PromptMaker) -> list[Script]:
    """The same texts for each configuration, to compare answers by; no two of a cell begin alike."""
    purpose = f"{cell.workload}/{cell.point}/{cell.repeat}"
    if sent.trace:
        return [
            Script(
                first=prompts.prompt(
                    f"{purpose}/{number}", request.prompt_tokens, shared=request.shared_prefix_tokens
                ),
                turns=[],
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
            )
            for number, request in enumerate(sent.trace)
        ]
    return [
        Script(
            first=prompts.prompt(f"{purpose}/{number}", sent.first_prompt_tokens, shared=sent.shared_tokens),
            turns=[
                prompts.prompt(f"{purpose}/{number}/{turn}", sent.turn_tokens)
                for turn in range(1, sent.turns)
            ],
        )
        for number in range(sent.conversations)
    ]


async def _warm_up(plan: Plan, cell: Cell, sent: Traffic, server: Server, prompts: PromptMaker) -> None:
    """Requests of the cell's own shape, not counted: what a server does only once is done then."""
    output_tokens = min(sent.output_tokens, plan.warm_up.output_tokens)
    for number in range(plan.warm_up.requests):
        again = f"/{number}" if number else ""
        purpose = f"warm-up/{cell.workload}/{cell.point}/{cell.repeat}{again}"
        prompt = await asyncio.to_thread(
            prompts.prompt, purpose, sent.first_prompt_tokens, shared=sent.shared_tokens
        )
        stream = await server.generate(prompt, output_tokens)
        fault = judge(stream, prompt_tokens=sent.first_prompt_tokens, output_tokens=output_tokens)
        if fault:
            raise ServerError(f"warm_up_{fault.code}", f"warm-up: {fault.detail}")


def _without(reasons: Sequence[Reason], code: str) -> list[Reason]:
    return [reason for reason in reasons if reason.code != code]


def _records(outcomes: Sequence[Outcome], server: Server) -> list[RequestRecord]:
    sent_ns = [outcome.stream.sent_ns for outcome in outcomes if outcome.stream]
    zero_ns = min(sent_ns, default=0)
    return [_record(outcome, zero_ns, server) for outcome in outcomes]


def _record(outcome: Outcome, zero_ns: int, server: Server) -> RequestRecord:
    stream, fault = outcome.stream, outcome.fault

    def since_ms(at_ns: int) -> float:
        return round((at_ns - zero_ns) / 1e6, 3)

    usage = stream.usage if stream else None
    spoken = server.engine.speculation(stream) if stream else None
    return RequestRecord(
        index=outcome.index,
        conversation=outcome.conversation,
        turn=outcome.turn,
        ok=fault is None,
        why=fault.code if fault else None,
        detail=fault.detail[:REQUEST_TEXT_LIMIT] if fault else None,
        due_ms=since_ms(outcome.due_ns) if outcome.due_ns is not None else None,
        sent_ms=since_ms(stream.sent_ns) if stream else None,
        first_ms=since_ms(stream.chunks_ns[0]) if stream and stream.chunks_ns else None,
        last_ms=since_ms(stream.chunks_ns[-1]) if stream and stream.chunks_ns else None,
        end_ms=since_ms(stream.end_ns) if stream else None,
        chunks=len(stream.chunks_ns) if stream else None,
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
        cached_tokens=usage.cached_tokens if usage else None,
        finish_reason=stream.finish_reason if stream else None,
        verify_steps=spoken.verify_steps if spoken else None,
        draft_tokens=spoken.draft_tokens if spoken else None,
        accepted_drafts=spoken.accepted_drafts if spoken else None,
        text_sha256=sha256_of(stream.text.encode())[:16] if stream and stream.text else None,
    )
