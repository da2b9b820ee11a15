"""A server's log file in a few lines: what it died of, as far as a log alone tells, and how it fared."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench_runner.server.log_lines import batches, last_lines
from bench_runner.server.signatures import classify, shows_a_crash

if TYPE_CHECKING:
    from pathlib import Path

    from bench_runner.server.log_lines import Batch

_LINES = 20_000


def explain(log: Path) -> list[str]:
    """Raises OSError where the file can't be read."""
    lines = last_lines(log, _LINES)
    told = [f"{log}: {len(lines)} lines looked at"]
    if shows_a_crash({"journal": lines}):
        crash = classify({"journal": lines})
        told += [f"{crash.signature}: {crash.sentence}", f"  {crash.line}", f"  {crash.advice}"]
        if crash.also:
            told.append(f"  also seen: {', '.join(crash.also)}")
    else:
        told.append("no sign of a crash in it")
    decode = [batch for batch in batches(lines) if batch.kind == "decode"]
    if decode:
        told.append(_fared(decode))
    return told


def _fared(decode: list[Batch]) -> str:
    last = decode[-1]
    parts = [f"{len(decode)} decode batches, the last at {last.at or 'an unknown time'}"]
    for key, words in (("gen_throughput_token_s", "tokens/s"), ("accept_len", "accepted length")):
        values = [value for value in (batch.values.get(key) for batch in decode) if _is_number(value)]
        numbers = [float(value) for value in values if value is not None]
        if numbers:
            parts.append(f"{words} {min(numbers):g} to {max(numbers):g}, median {median(numbers):g}")
    return "; ".join(parts)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
