"""Of 48 requests 8 go wrong, in each way that there is: none of them is counted as ok, and none is lost."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import uvloop
from bench_runner.cells import Traffic
from bench_runner.client.receivers import best_receiver
from bench_runner.client.transport import Connection
from bench_runner.load import Load, Script
from bench_runner.plan import Limits

from tests.sim.sglang_shaped import Behaviour, Fault
from tests.unit.bench_runner.conftest import free_port
from tests.unit.bench_runner.test_bench_streams import FAULT_CODES

REQUESTS, BAD, CLIENTS, TOKENS = 48, 8, 12, 32
TRAFFIC = Traffic(
    clients=CLIENTS,
    conversations=REQUESTS,
    turns=1,
    first_prompt_tokens=5,
    turn_tokens=0,
    output_tokens=TOKENS,
)


class Dialect:
    path = "/v1/completions"

    def request_body(self, prompt: str, output_tokens: int) -> bytes:
        asked = {"prompt": prompt, "max_tokens": output_tokens, "stream": True}
        return json.dumps({**asked, "stream_options": {"include_usage": True}}).encode()

    def tokens(self, text: str) -> int:  # noqa: ARG002 - each prompt is the same
        return 5


class Target:
    def __init__(self, port: int, *, dead: bool = False) -> None:
        self.engine = Dialect()
        self.receiver = best_receiver()
        self.port = port
        self.dead = dead

    def connection(self) -> Connection:
        return Connection("127.0.0.1", self.port, self.receiver)

    async def has_died(self, *, patient: bool = False) -> bool:  # noqa: ARG002 - it is known
        return self.dead


def run(target: Target, *, stall_s: float = 5):
    scripts = [Script(first="a b c", turns=[]) for _ in range(REQUESTS)]
    load = Load(TRAFFIC, scripts, target, Limits(cell_s=20, stall_s=stall_s))
    return load, uvloop.run(load.run())


@pytest.mark.parametrize(("fault", "code"), FAULT_CODES.items())
def test_eight_bad_requests_are_eight_failures_of_their_own_kind(simulator, fault, code):
    port = simulator(Behaviour(faults=[Fault(fault, times=BAD, after=10)]))
    _, outcomes = run(Target(port), stall_s=0.4)
    codes = Counter(outcome.fault.code if outcome.fault else "ok" for outcome in outcomes)
    assert codes == {"ok": REQUESTS - BAD, code: BAD}


def test_a_dead_server_ends_the_load_at_once_and_each_request_has_its_outcome():
    load, outcomes = run(Target(free_port(), dead=True))
    codes = Counter(outcome.fault.code for outcome in outcomes)
    assert load.server_died
    assert sum(codes.values()) == REQUESTS
    assert set(codes) == {"refused", "not_sent"}
    assert codes["refused"] <= CLIENTS
