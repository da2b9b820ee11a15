"""Run a function in a child process with a time limit, so that a hung driver can't hang its caller.

Runs on hosts and nodes: standard library and Python 3.9 only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any, Callable, NoReturn

Report = Callable[[str, Any], None]
GRACE_S = 1.0


class LimitedCall:
    """function(report) runs in a child from now on; `result` waits for it, at most until the limit.

    The child streams what it finds, so a hang in the third GPU keeps the first two. On a time-out it is
    killed; a child in uninterruptible sleep can't be, and is left behind (`abandoned_pid`). It holds none of
    our files, so not even then does the connection wait for it.
    """

    def __init__(self, function: Callable[[Report], None], limit_s: float) -> None:
        self._limit_s = limit_s
        self._deadline = time.monotonic() + limit_s
        self._read_end, write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _be_child(function, write_end)
        os.close(write_end)

    def result(self) -> dict[str, Any]:
        """{"status": ok|timeout|crashed|failed, **what the function reported}."""
        text, in_time = _read_until(self._read_end, self._deadline)
        os.close(self._read_end)
        found: dict[str, Any] = {}
        for line in text.splitlines():
            with contextlib.suppress(ValueError):  # the last line may be cut off by the kill
                key, value = json.loads(line)
                found[key] = value
        if not in_time:
            os.kill(self._pid, signal.SIGKILL)
        status = _reap(self._pid, time.monotonic() + GRACE_S)
        if not in_time or status is None:
            found.update({"status": "timeout", "limit_s": self._limit_s})
            if status is None:
                found["abandoned_pid"] = self._pid
        elif os.WIFSIGNALED(status):
            found.update({"status": "crashed", "signal": signal.Signals(os.WTERMSIG(status)).name})
        else:
            found["status"] = "failed" if "error" in found else "ok"
        return found


def _be_child(function: Callable[[Report], None], write_end: int) -> NoReturn:
    """Lets go of everything inherited, so that nobody waits for this process."""
    code = 0
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.closerange(3, write_end)
        os.closerange(write_end + 1, 4096)

        def report(key: str, value: Any) -> None:  # noqa: ANN401 - anything that JSON can say
            os.write(write_end, (json.dumps([key, value]) + "\n").encode())

        try:
            function(report)
        except Exception as exc:  # noqa: BLE001 - the report is the only way out of this process
            report("error", f"{type(exc).__name__}: {exc}")
    except BaseException:  # noqa: BLE001 - a child must never run its parent's code
        code = 1
    os._exit(code)


def _read_until(read_end: int, deadline: float) -> tuple[str, bool]:
    """All text until the writer closes (True) or the deadline passes (False)."""
    chunks: list[bytes] = []
    while True:
        left = max(0.0, deadline - time.monotonic())
        if not select.select([read_end], [], [], left)[0]:
            return b"".join(chunks).decode("utf-8", "replace"), False
        chunk = os.read(read_end, 65536)
        if not chunk:
            return b"".join(chunks).decode("utf-8", "replace"), True
        chunks.append(chunk)


def _reap(pid: int, deadline: float) -> int | None:
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done == pid:
            return status
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)
