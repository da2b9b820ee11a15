"""A cell may have more clients than a process may open files by default."""

import resource

import pytest

from tests.unit.bench_runner.campaign_words import statuses
from tests.unit.bench_runner.conftest import SMALL_PLAN

SOFT = 64


@pytest.fixture
def few_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_a_cell_with_more_clients_than_the_soft_limit_of_open_files_is_measured(bench):
    load = {"points": [2 * SOFT], "requests_per_client": 1, "prompt_tokens": 16, "output_tokens": 2}
    bench.plan(SMALL_PLAN, workloads={"concurrency": load}, limits={"stall_s": 25, "cell_s": 60})
    bench.simulate("tp1-auto")
    outcome = bench.run()
    assert outcome.state == "finished"
    assert list(statuses(bench)) == [f"tp1-auto.concurrency.{2 * SOFT}.r1"]
    assert bench.cell(f"tp1-auto.concurrency.{2 * SOFT}.r1").requests.ok == 2 * SOFT
