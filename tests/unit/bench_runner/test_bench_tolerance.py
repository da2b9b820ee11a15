"""What a plan tolerates never makes a cell ok that has nothing to show."""

import pytest

from tests.unit.bench_runner.campaign_words import codes, statuses
from tests.unit.bench_runner.conftest import SMALL_PLAN


@pytest.mark.parametrize(
    ("fault", "status"), [("zero_tokens", "failed"), ("error_event", "failed"), ("early_stop", "partial")]
)
def test_however_many_may_fail_one_must_go_well(bench, fault, status):
    bench.plan(
        SMALL_PLAN,
        workloads={"code": {"points": [40, 48], "requests": 2}},
        tolerance={**SMALL_PLAN["tolerance"], "failed_requests": 10},
    )
    bench.simulate("tp1-auto", {"faults": [{"name": fault, "min_output": 40, "max_output": 40}]})
    outcome = bench.run()
    assert outcome.state == "finished"
    assert statuses(bench) == {"tp1-auto.code.40.r1": status, "tp1-auto.code.48.r1": "ok"}
    assert codes(bench, "tp1-auto.code.40.r1") == [fault]
    assert bench.cell("tp1-auto.code.40.r1").metrics is None
    bench.check_schemas()


def test_one_good_answer_of_two_is_measured_where_one_may_fail(bench):
    bench.plan(
        SMALL_PLAN,
        workloads={"code": {"points": [40], "requests": 2}},
        tolerance={**SMALL_PLAN["tolerance"], "failed_requests": 2},
    )
    bench.simulate("tp1-auto", {"faults": [{"name": "zero_tokens", "min_output": 40, "times": 1}]})
    bench.run()
    cell = bench.cell("tp1-auto.code.40.r1")
    assert (cell.status, cell.requests.ok, cell.metrics.completion_tokens) == ("ok", 1, 40)
