"""The two clocks of a measurement: sends are on the monotonic one, kernel stamps on the realtime one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

# A clock that is put right slowly (chrony, ntpd) moves at most 500 µs a second, adjtime() as much again.
_SLEW = 0.001
# What reading the clocks can be wrong by when it goes well; a reading that took longer is tried again.
_READING_NS = 50_000
_TRIES = 5


class ClockStep(Struct, frozen=True, kw_only=True):
    """The realtime clock jumped: stamps around `at_ns` (CLOCK_MONOTONIC) may be wrong by as much."""

    at_ns: int
    step_ns: int


class ClockPair:
    """How far the realtime clock is ahead of the monotonic one, sampled through a run: a step is seen."""

    def __init__(self, read: Callable[[], tuple[int, int]] | None = None) -> None:
        self._read = read or read_offset
        self.begin()

    def begin(self) -> None:
        """The start of a run: what was before it isn't its step."""
        self.offset_ns, _ = self._read()
        self.steps: list[ClockStep] = []
        self.samples = 1
        self._first_ns = self.offset_ns
        self._at_ns = time.monotonic_ns()

    @property
    def drift_ns(self) -> int:
        """The whole change since the first sample, steps and slow corrections together."""
        return self.offset_ns - self._first_ns

    def sample(self) -> None:
        offset_ns, uncertain_ns = self._read()
        now_ns = time.monotonic_ns()
        allowed_ns = _SLEW * (now_ns - self._at_ns) + 2 * max(uncertain_ns, _READING_NS)
        moved_ns = offset_ns - self.offset_ns
        if abs(moved_ns) > allowed_ns:
            self.steps.append(ClockStep(at_ns=now_ns, step_ns=moved_ns))
        elif uncertain_ns > _READING_NS:
            return  # interrupted while reading: the older offset is the better one
        self.offset_ns = offset_ns
        self._at_ns = now_ns
        self.samples += 1


def read_offset() -> tuple[int, int]:
    """The offset, and by how much it may be wrong: half the time that the reading took."""
    best_ns, offset_ns = 1 << 62, 0
    for _ in range(_TRIES):
        before = time.monotonic_ns()
        realtime = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_ns:
            best_ns, offset_ns = after - before, realtime - (before + after) // 2
        if best_ns < _READING_NS:
            break
    return offset_ns, best_ns // 2
