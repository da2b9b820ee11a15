"""Loads against the exact server: what was asked is sent, and the client sees when it was late itself."""

from __future__ import annotations

import asyncio
import gc
import os
import time

import pytest
import uvloop
from bench_runner.arrivals import rate_of, schedule
from bench_runner.cells import Traffic
from bench_runner.client.timer import Alarm, Timer
from bench_runner.load import Load, Script
from bench_runner.open_load import OpenLoad
from bench_runner.plan import Limits
from bench_runner.selftest.rig import Shape, rig
from bench_runner.selftest.steps import Step, measure
from hypothesis import given
from hypothesis import strategies as st

LIMITS = Limits(cell_s=20, stall_s=5)


@pytest.fixture(scope="module")
def exact():
    with rig() as found:
        yield found


def traffic(clients: int, requests: int, tokens: int) -> Traffic:
    return Traffic(
        clients=clients,
        conversations=requests,
        turns=1,
        first_prompt_tokens=1,
        turn_tokens=0,
        output_tokens=tokens,
    )


def scripts(requests: int) -> list[Script]:
    return [Script(first=str(number), turns=[]) for number in range(requests)]


def test_the_clients_figures_are_the_servers_truth(exact):
    found = uvloop.run(measure(exact, Step(streams=8, gap_us=5_000, chunks=40, requests=24)))
    assert (found.requests, found.faults) == (24, 0)
    assert found.chunks_per_s > 400
    assert abs(found.ttft_error_p50_ms) < 1
    assert found.stamp_late_p50_ms < 1
    assert abs(found.tpot_error) < 0.01
    assert abs(found.tps_error) < 0.01
    assert found.health.reads >= 24 * 20
    assert 0 < found.health.cpu_share < 1
    assert found.sending.turnaround.n == 16
    assert 0 < found.sending.turnaround_share < 0.2


def test_an_open_loop_sends_when_it_is_due_however_slow_the_server_is(exact):
    exact.engine.shape = Shape(ttft_us=400_000, gap_us=1_000)
    due_ns = schedule("poisson", rate=100, requests=60, seed="x")
    load = OpenLoad(traffic(1, 60, 2), scripts(60), exact, LIMITS, due_ns=due_ns)
    outcomes = uvloop.run(load.run())
    assert [outcome.fault for outcome in outcomes] == [None] * 60
    late_ms = sorted((outcome.stream.sent_ns - outcome.due_ns) / 1e6 for outcome in outcomes)
    assert late_ms[0] >= 0
    assert late_ms[30] < 100  # and not 400: a busy machine must not fail this
    sending = load.sending()
    assert sending.late.n == 60
    assert sending.target_rps == pytest.approx(100, rel=0.01)
    assert sending.achieved_rps == pytest.approx(100, rel=0.2)
    exact.truth()


def test_a_request_has_its_own_output_length(exact):
    exact.engine.shape = Shape(ttft_us=1_000, gap_us=1_000)
    several = [Script(first=str(n), turns=[], output_tokens=n + 2) for n in range(4)]
    outcomes = uvloop.run(Load(traffic(2, 4, 9), several, exact, LIMITS).run())
    assert [outcome.stream.usage.completion_tokens for outcome in outcomes] == [2, 3, 4, 5]
    exact.truth()


def test_a_client_that_was_held_up_says_so_and_its_speeds_are_still_right(exact):
    exact.engine.shape = Shape(ttft_us=20_000, gap_us=2_000)

    async def held_up():
        load = Load(traffic(4, 4, 200), scripts(4), exact, LIMITS)
        running = asyncio.ensure_future(load.run())
        await asyncio.sleep(0.2)
        time.sleep(0.06)  # noqa: ASYNC251 - the fault that is tested
        return load, await running

    errors = []
    for _ in range(5):  # a busy machine holds up the server as well, which this is not about
        load, outcomes = uvloop.run(held_up())
        assert load.health.loop_lag.max_ms > 30
        truths = exact.truth()
        for outcome in outcomes:
            chunks = outcome.stream.chunks_ns
            assert len(set(chunks)) < len(chunks)
        errors.append(max(span_error(outcome, truths[outcome.index]) for outcome in outcomes))
        if errors[-1] < 0.05:
            break
    assert min(errors) < 0.05


def span_error(outcome, truth):
    chunks, sent = outcome.stream.chunks_ns, truth.sent_ns
    return abs((chunks[-1] - chunks[0]) / (sent[-1] - sent[0]) - 1)


def test_a_cell_that_ran_out_of_time_leaves_no_request_without_an_outcome(exact):
    exact.engine.shape = Shape(ttft_us=1_000, gap_us=50_000)
    load = Load(traffic(2, 4, 20), scripts(4), exact, Limits(cell_s=0.3, stall_s=5))
    outcomes = uvloop.run(load.run())
    assert [outcome.fault.code for outcome in outcomes] == ["cell_timed_out"] * 4
    assert gc.isenabled()


@given(rate=st.floats(0.5, 2000), requests=st.integers(2, 300), seed=st.text(max_size=5))
def test_a_schedule_has_the_rate_asked_for(rate, requests, seed):
    for pattern in ("constant", "poisson"):
        due_ns = schedule(pattern, rate=rate, requests=requests, seed=seed)
        assert len(due_ns) == requests
        assert due_ns == sorted(due_ns)
        assert rate_of(due_ns) == pytest.approx(rate, rel=0.001)
        assert due_ns == schedule(pattern, rate=rate, requests=requests, seed=seed)


def test_poisson_gaps_vary_as_they_should():
    due_ns = schedule("poisson", rate=200, requests=5000, seed="1")
    gaps = [after - before for before, after in zip(due_ns, due_ns[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert spread / mean == pytest.approx(1, abs=0.05)
    assert rate_of([5]) is None
    assert rate_of([5, 5]) is None


@pytest.mark.parametrize("has_timerfd", [True, False], ids=["timerfd", "loop"])
def test_an_alarm_rings_at_its_time_and_a_timer_again_and_again(monkeypatch, has_timerfd):
    if not has_timerfd:
        monkeypatch.setattr("bench_runner.client.timer.make_timerfd", lambda: None)
    rang: list[int] = []

    async def wait():
        timer, alarm = Timer(lambda: rang.append(time.monotonic_ns())), Alarm()
        start_ns = time.monotonic_ns()
        timer.at(start_ns + 5_000_000, every_ns=10_000_000)
        await alarm.until(start_ns - 1)
        await alarm.until(start_ns + 42_000_000)
        timer.close()
        alarm.close()
        return start_ns, time.monotonic_ns()

    start_ns, end_ns = asyncio.run(wait())
    assert end_ns - start_ns >= 41_000_000
    assert 1 <= len(rang) <= 5
    assert rang[0] - start_ns >= 4_000_000


def test_the_rig_gives_back_the_processors(exact):
    before = os.sched_getaffinity(0)
    with rig():
        pass
    assert os.sched_getaffinity(0) == before
