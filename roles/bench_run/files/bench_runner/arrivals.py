"""When the requests of an open loop are due, whatever the server does with them: times from the start."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

_NS = 1_000_000_000
Pattern = Literal["constant", "poisson"]


def schedule(pattern: Pattern, *, rate: float, requests: int, seed: str) -> list[int]:
    """Nanoseconds from the start. Both patterns end at the same time: the mean rate is the one asked for."""
    if pattern == "constant":
        return [int(number * _NS / rate) for number in range(requests)]
    rng = random.Random(f"arrivals/{seed}")  # noqa: S311 - a load, not a secret
    gaps = [rng.expovariate(1.0) for _ in range(requests - 1)]
    # The sum of few random gaps is far from its mean, and a rate that isn't the one asked for is of no use.
    scale = (requests - 1) / rate / sum(gaps) if gaps else 0.0
    due, at_s = [0], 0.0
    for gap in gaps:
        at_s += gap * scale
        due.append(int(at_s * _NS))
    return due


def rate_of(times_ns: Sequence[int]) -> float | None:
    """Requests a second from the first to the last; None for fewer than two, or all at once."""
    if len(times_ns) < 2 or max(times_ns) == min(times_ns):  # noqa: PLR2004 - a rate needs a gap
        return None
    return (len(times_ns) - 1) * _NS / (max(times_ns) - min(times_ns))
