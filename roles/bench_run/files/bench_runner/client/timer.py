"""Waking at a time to some microseconds: the loop's own timers have a resolution of a millisecond."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
_NS = 1_000_000_000


class _Spec(ctypes.Structure):
    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class Timer:
    """Calls back in the running loop at times of CLOCK_MONOTONIC: by a timerfd where there is one."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._every_ns = 0
        self._next_ns = 0
        self._handle: asyncio.TimerHandle | None = None
        self._fd = make_timerfd()
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._expired)

    def at(self, at_ns: int, *, every_ns: int = 0) -> None:
        """Once at that time, which may be past, and then at each multiple of `every_ns` after it."""
        self._every_ns, self._next_ns = every_ns, at_ns
        if self._fd is None:
            self._arm_loop()
            return
        set_timerfd(self._fd, at_ns, every_ns=every_ns)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _expired(self) -> None:
        if self._fd is None:
            return
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._callback()

    def _arm_loop(self) -> None:
        left_s = (self._next_ns - time.monotonic_ns()) / _NS
        self._handle = self._loop.call_later(max(left_s, 0.0), self._loop_expired)

    def _loop_expired(self) -> None:
        if self._every_ns:
            self._next_ns += self._every_ns
            self._arm_loop()
        self._callback()


class Alarm:
    """To wait for one time after the other."""

    def __init__(self) -> None:
        self._timer = Timer(self._ring)
        self._waiting: asyncio.Future[None] | None = None

    async def until(self, at_ns: int) -> None:
        if time.monotonic_ns() >= at_ns:
            return
        self._waiting = asyncio.get_running_loop().create_future()
        self._timer.at(at_ns)
        await self._waiting

    def close(self) -> None:
        self._timer.close()

    def _ring(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


_LIBC = ctypes.CDLL(None, use_errno=True)


def make_timerfd() -> int | None:
    """None where the system has none, which only Linux has."""
    try:
        found = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, _TFD_FLAGS)
    except AttributeError:
        return None
    return found if found >= 0 else None


def set_timerfd(timer: int, at_ns: int, *, every_ns: int = 0) -> None:
    at_ns = max(at_ns, 1)  # zero would switch it off
    spec = _Spec(every_ns // _NS, every_ns % _NS, at_ns // _NS, at_ns % _NS)
    if _LIBC.timerfd_settime(timer, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None):
        raise OSError(ctypes.get_errno(), "timerfd_settime")
