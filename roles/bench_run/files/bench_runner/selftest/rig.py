"""The exact server as a process, and the client's side of it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import requests
from msgspec import Struct

from bench_runner.client.receivers import Receiver, best_receiver
from bench_runner.client.transport import Connection
from bench_runner.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

_STOP_S = 10
_TRUTH_S = 60


class Shape(Struct, frozen=True, kw_only=True):
    """How each request is answered."""

    ttft_us: int = 50_000
    gap_us: int = 10_000
    tokens_per_chunk: int = 1


class Truth(Struct, frozen=True):
    """What the server did: when the request came and each chunk was sent, and how late the worst was."""

    came_ns: int
    sent_ns: list[int]
    late_ns: int
    slow_ns: int


class ExactDialect:
    """A prompt is the request's number, to find its truth by."""

    path = "/v1/completions"

    def __init__(self) -> None:
        self.shape = Shape()

    def request_body(self, prompt: str, output_tokens: int) -> bytes:
        asked = {"prompt": prompt, "max_tokens": output_tokens, "stream": True}
        return msgspec.json.encode({**asked, **msgspec.to_builtins(self.shape)})

    def tokens(self, text: str) -> int:  # noqa: ARG002 - each prompt is one token
        return 1


class Rig:
    """A load's target."""

    def __init__(self, port: int, receiver: Receiver | None = None) -> None:
        self.port = port
        self.engine = ExactDialect()
        self.receiver = receiver or best_receiver()
        self._session = requests.Session()
        self._session.trust_env = False

    def connection(self) -> Connection:
        return Connection("127.0.0.1", self.port, self.receiver)

    async def has_died(self, *, patient: bool = False) -> bool:  # noqa: ARG002 - it is ours, and a fault is a fault
        return False

    def truth(self) -> dict[int, Truth]:
        """By number, of the requests answered since it was last asked."""
        reply = self._session.get(f"http://127.0.0.1:{self.port}/truth", timeout=_TRUTH_S)
        return msgspec.json.decode(reply.content, type=dict[int, Truth])

    def close(self) -> None:
        self._session.close()


@contextmanager
def rig(receiver: Receiver | None = None) -> Iterator[Rig]:
    """Server and client on processors of their own where there are two, until this ends."""
    package = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": package}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench_runner.selftest.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    before = os.sched_getaffinity(0)
    try:
        line = process.stdout.readline() if process.stdout else b""
        if not line.strip().isdigit():
            raise BenchError("the self-test's server did not start")
        if len(before) > 1:
            first, *others = sorted(before)
            os.sched_setaffinity(process.pid, {first})
            os.sched_setaffinity(0, set(others))
        found = Rig(int(line), receiver)
        try:
            yield found
        finally:
            found.close()
    finally:
        os.sched_setaffinity(0, before)
        if process.stdin:
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def machine() -> dict[str, object]:
    """What the figures belong to."""
    models = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "processor": models[0].partition(":")[2].strip() if models else None,
        "processors": len(os.sched_getaffinity(0)),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "load": list(os.getloadavg()),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
