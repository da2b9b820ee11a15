"""The self-test as a whole: the loads that are tried, and how far this machine's figures hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bench_runner.client.watch import processors_allowed
from bench_runner.selftest.rig import machine, rig
from bench_runner.selftest.steps import Found, Step, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

SELFTEST_VERSION = 1
_MS_10 = 10_000
STREAMS = (1, 16, 64, 128, 256, 512)
GAPS_US = (5_000, 3_333, 2_000)  # of 128 streams
RATES = (50, 200, 500, 1000)
_OPEN_S = 2
REPEATS = 3
_HEAD = (
    f"{'load':22s} {'chunks/s':>9s} {'TTFT err p50/p99':>17s} {'stamp late p99':>15s} {'shared':>7s} "
    f"{'TPOT err':>9s} {'send late p99':>14s} {'CPU':>5s}  holds"
)
_ALL_HOLD = (
    "All figures hold up to {streams} streams of 10 ms a chunk, {chunks_per_s} chunks/s; "
    "an open loop up to {open_loop_rps} requests/s."
)
_SPEED_HOLDS = "TTFT and speeds hold up to {speed_streams} streams, {speed_chunks_per_s} chunks/s."


class Line(Struct, frozen=True, kw_only=True):
    """A step's median run, by the lateness of its stamps; it holds when most of its runs do."""

    what: str
    found: Found
    ttft: bool
    gaps: bool
    speed: bool
    sends: bool
    certified: bool  # what the client certified held, in each run


class Selftest(Struct, frozen=True, kw_only=True):
    """`ceiling` has the largest load of each kind at which its figures hold; None where none does."""

    schema: str
    schema_version: int
    machine: dict[str, Any]
    stamps: str
    seconds: float
    alone: bool  # server and client had a processor each
    lines: list[Line]
    ceiling: dict[str, float | None]


def steps() -> list[tuple[str, Step]]:
    """Streams at an engine's pace, faster chunks, and open loops."""
    closed = [(f"{n} streams, 10 ms", Step(streams=n, gap_us=_MS_10, chunks=60)) for n in STREAMS]
    fast = [
        (f"128 streams, {gap_us / 1000:g} ms", Step(streams=128, gap_us=gap_us, chunks=300_000 // gap_us))
        for gap_us in GAPS_US
    ]
    opened = [
        (
            f"{rate}/s, Poisson",
            Step(streams=1, gap_us=_MS_10, chunks=10, requests=rate * _OPEN_S, rate=rate),
        )
        for rate in RATES
    ]
    return [*closed, *fast, *opened]


def selftest(
    run: Callable[[Coroutine[Any, Any, Found]], Found],
    *,
    tried: list[tuple[str, Step]] | None = None,
    repeats: int = REPEATS,
) -> Selftest:
    """`run` runs a coroutine in a new loop of the kind that measures."""
    started_s = time.monotonic()
    with rig() as exact:
        lines = [
            _line(what, [run(measure(exact, step)) for _ in range(repeats)])
            for what, step in (tried or steps())
        ]
        stamps = exact.receiver.stamps
    return Selftest(
        schema="recover-and-bench/selftest",
        schema_version=SELFTEST_VERSION,
        machine=machine(),
        stamps=stamps,
        seconds=time.monotonic() - started_s,
        alone=processors_allowed() > 1,
        lines=lines,
        ceiling=_ceiling(lines),
    )


def table(found: Selftest) -> str:
    """For people."""
    ceiling = {name: _said(value) for name, value in found.ceiling.items()}
    machine_ = found.machine
    said = [
        _HEAD,
        *(_row(line) for line in found.lines),
        "",
        f"Stamps: {found.stamps}; {machine_['processors']} processors, {found.seconds:.0f} s.",
        _ALL_HOLD.format(**ceiling),
        _SPEED_HOLDS.format(**ceiling),
    ]
    if not all(line.certified for line in found.lines):
        said.append("A figure was certified that did not hold: do not trust this client on this machine.")
    if not found.alone:
        said.append("Server and client shared a processor: the figures are worse than the client is.")
    return "\n".join(said)


def encode(found: Selftest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def write(found: Selftest, path: Path) -> None:
    path.write_bytes(encode(found))


def _line(what: str, runs: list[Found]) -> Line:
    def most(held: list[bool]) -> bool:
        return sum(held) * 2 > len(held)

    return Line(
        what=what,
        found=sorted(runs, key=lambda run: run.stamp_late_p99_ms)[len(runs) // 2],
        ttft=most([run.ttft_holds for run in runs]),
        gaps=most([run.gaps_hold for run in runs]),
        speed=most([run.speed_holds for run in runs]),
        sends=most([run.sends_hold for run in runs]),
        certified=all(not run.wrongly_certified for run in runs),
    )


def _ceiling(lines: list[Line]) -> dict[str, float | None]:
    closed = [line for line in lines if line.found.step.rate is None]
    ladder = [line for line in closed if line.found.step.gap_us == _MS_10]
    opened = [line for line in lines if line.found.step.rate is not None]
    whole = [line for line in closed if line.ttft and line.gaps and line.speed]
    speed = [line for line in closed if line.ttft and line.speed]
    return {
        "streams": _up_to([(line.found.step.streams, line in whole) for line in ladder]),
        "chunks_per_s": max((round(line.found.chunks_per_s) for line in whole), default=None),
        "speed_streams": _up_to([(line.found.step.streams, line in speed) for line in ladder]),
        "speed_chunks_per_s": max((round(line.found.chunks_per_s) for line in speed), default=None),
        "open_loop_rps": _up_to([(line.found.step.rate or 0, line.ttft and line.sends) for line in opened]),
    }


def _up_to(tried: list[tuple[float, bool]]) -> float | None:
    """The last before the first that doesn't hold."""
    best = None
    for load, holds in sorted(tried):
        if not holds:
            break
        best = load
    return best


def _row(line: Line) -> str:
    found = line.found
    late = found.sending.late
    sent = f"{late.p99_ms:11.2f} ms" if late else f"{'-':>14s}"
    held = {
        "TTFT": line.ttft,
        "gaps": line.gaps,
        "speed": line.speed,
        **({"sends": line.sends} if late else {}),
    }
    ttft = f"{found.ttft_error_p50_ms:7.2f}/{found.ttft_error_p99_ms:6.2f} ms"
    missing = [name for name, holds in held.items() if not holds]
    return (
        f"{line.what:22s} {found.chunks_per_s:9.0f} {ttft}"
        f" {found.stamp_late_p99_ms:12.3f} ms {found.together_share:7.2%} {found.tpot_error:+9.3%} {sent}"
        f" {found.health.cpu_share:5.0%}  {'all' if not missing else 'not ' + ', '.join(missing)}"
    )


def _said(value: float | None) -> str:
    return "no" if value is None else f"{value:g}"
