"""Many small times, kept as counts: how late this process was, in bounded memory and at little cost."""

from __future__ import annotations

from array import array

from msgspec import Struct

_SHIFT = 13  # bins of 8.2 µs
_BINS = 2048  # up to 16.8 ms; what is longer is in the last bin, and in the maximum


class LagSummary(Struct, frozen=True, kw_only=True):
    n: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class Lags:
    """`add` is on the path of each read: two operations."""

    def __init__(self) -> None:
        self.counts = array("L", bytes(8 * _BINS))
        self.max_ns = 0

    def add(self, lag_ns: int) -> None:
        self.max_ns = max(self.max_ns, lag_ns)
        self.counts[min(max(lag_ns >> _SHIFT, 0), _BINS - 1)] += 1

    def summary(self) -> LagSummary | None:
        n = sum(self.counts)
        if not n:
            return None
        return LagSummary(n=n, p50_ms=self._at(n, 0.5), p99_ms=self._at(n, 0.99), max_ms=self.max_ns / 1e6)

    def _at(self, n: int, share: float) -> float:
        """The upper end of the bin that the share falls into: never better than it was."""
        left = n * share
        for number, count in enumerate(self.counts):
            left -= count
            if left <= 0:
                if number == _BINS - 1:
                    return self.max_ns / 1e6
                return min((number + 1) << _SHIFT, self.max_ns) / 1e6
        return self.max_ns / 1e6
