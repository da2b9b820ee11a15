"""What the client sees of itself while it measures: how late it was, and what it was kept from."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from bench_runner.client.lags import Lags, LagSummary
from bench_runner.client.timer import Timer

if TYPE_CHECKING:
    from bench_runner.client.receivers import Receiver

_TICK_NS = 20_000_000
_STEAL = 7  # its place among the numbers of /proc/stat's first line
_GUEST = 8  # what follows is part of the user's and nice's time


class ClientHealth(Struct, frozen=True, kw_only=True):
    """None where the system doesn't say it. Shares are of one processor's time, `steal_share` of all."""

    stamps: str
    wall_s: float
    reads: int
    unstamped_reads: int
    # From the kernel's stamp until bytes were taken. Bytes that waited together have the last ones' stamp:
    # how long the others waited shows only in the lag of the loop.
    read_lag: LagSummary | None
    loop_lag: LagSummary | None  # how late a timer was seen
    cpu_share: float  # of the thread that reads and sends
    waited_share: float | None  # ready to run, but another ran
    steal_share: float | None  # taken from this machine by its host
    clock_steps_ms: list[float]
    clock_drift_ms: float


class ClientWatch:
    """From `start` to `stop` in the loop's own thread."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.loop_lags = Lags()
        self._timer: Timer | None = None
        self._next_ns = 0
        self._begun = _Reading()

    def start(self) -> None:
        self.receiver.begin()
        self._begun = _Reading()
        self._timer = Timer(self._tick)
        self._next_ns = time.monotonic_ns() + _TICK_NS
        self._timer.at(self._next_ns, every_ns=_TICK_NS)

    def stop(self, *, reads: int) -> ClientHealth:
        if self._timer is not None:
            self._timer.close()
        clocks = self.receiver.clocks
        clocks.sample()
        begun, ended = self._begun, _Reading()
        wall_s = (ended.at_ns - begun.at_ns) / 1e9
        waited_s = None
        if begun.waited_ns is not None and ended.waited_ns is not None:
            waited_s = (ended.waited_ns - begun.waited_ns) / 1e9
        return ClientHealth(
            stamps=self.receiver.stamps,
            wall_s=wall_s,
            reads=reads,
            unstamped_reads=self.receiver.unstamped,
            read_lag=self.receiver.lags.summary(),
            loop_lag=self.loop_lags.summary(),
            cpu_share=(ended.cpu_s - begun.cpu_s) / wall_s,
            waited_share=waited_s / wall_s if waited_s is not None else None,
            steal_share=_steal_share(begun.processors, ended.processors),
            clock_steps_ms=[step.step_ns / 1e6 for step in clocks.steps],
            clock_drift_ms=clocks.drift_ns / 1e6,
        )

    def _tick(self) -> None:
        """Each tick that was missed counts, so that the lags are weighted by time."""
        now_ns = time.monotonic_ns()
        while True:
            self.loop_lags.add(now_ns - self._next_ns)
            self._next_ns += _TICK_NS
            if self._next_ns > now_ns:
                break
        self.receiver.clocks.sample()


class _Reading:
    def __init__(self) -> None:
        self.at_ns = time.monotonic_ns()
        self.cpu_s = time.thread_time()
        self.waited_ns = _waited_ns()
        self.processors = _processors()


def _waited_ns() -> int | None:
    """How long this thread was ready and another ran in its place: the second number of its schedstat."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _processors() -> list[int] | None:
    """The processors' time by kind, in ticks."""
    try:
        with open("/proc/stat", "rb") as stat:  # noqa: PTH123 - one line of a long file
            return [int(number) for number in stat.readline().split()[1 : 1 + _GUEST]]
    except (OSError, ValueError):
        return None


def _steal_share(begun: list[int] | None, ended: list[int] | None) -> float | None:
    if begun is None or ended is None or len(ended) <= _STEAL:
        return None
    spent = [after - before for before, after in zip(begun, ended)]
    return spent[_STEAL] / sum(spent) if sum(spent) > 0 else None


def processors_allowed() -> int:
    """How many this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
