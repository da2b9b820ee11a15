"""Scopes of quirks: conditions on flags, ranges of versions, GPUs by architecture; read, never evaluated."""

from datetime import date

import msgspec
import pytest
from bench_runner.cells import Cell
from bench_runner.deployment import Deployment
from bench_runner.plan import Quirk
from bench_runner.quirks.expression import ExpressionError, parse
from bench_runner.quirks.scope import Place, covers, has_expired, place_of
from bench_runner.quirks.versions import RangeError, check_range, in_range

FLAGS = {
    "speculative-ddtree-budget": 12,
    "speculative-algorithm": "DDTREE",
    "trust-remote-code": True,
    "ratio": "0.5",
}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("ddtree-budget < 15", True),  # the build's name for it is longer
        ("speculative-ddtree-budget >= 12", True),
        ("ddtree-budget > 12", False),
        ("ddtree-budget == '12'", True),
        ("ddtree-budget != 12", False),
        ("ddtree-budget in [8, 12]", True),
        ("ddtree-budget not in [8, 12]", False),
        ("speculative-algorithm == ddtree and ddtree-budget < 15", True),
        ("speculative-algorithm == EAGLE3 or ddtree-budget < 15", True),
        ("not (ddtree-budget < 15)", False),
        ("trust-remote-code", True),
        ("ratio <= 0.5", True),
        ("speculative-algorithm < 3", False),  # text has no order
        # A flag that isn't set makes every comparison false, also the negative ones.
        ("page-size != 1", False),
        ("page-size not in [1]", False),
        ("page-size", False),
        ("not page-size", True),
    ],
)
def test_a_condition_is_read_by_its_own_small_grammar(condition, holds):
    assert parse(condition)(FLAGS) is holds


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("", "the condition is empty"),
        ("budget <", "can't be read at its end: needed a value"),
        ("budget < 15 b", "at 'b': needed and, or, or the end"),
        ("(budget", "at its end: needed )"),
        ("budget in 3", "at '3': needed ["),
        ("1 < budget", "at '1': needed a flag's name"),
        ("__import__('os').system('true')", "at '('"),
        ("budget < 3 ; x", "at '; x'"),
        ("(" * 50 + "a" + ")" * 50, "nested too deeply"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_place(condition, said):
    with pytest.raises(ExpressionError) as refused:
        parse(condition)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("version", "wanted", "inside"),
    [
        ("sglang 0.5.23 (abc1234)", ">= 0.5.20, < 0.6", True),
        ("sglang 0.5.9", ">= 0.5.20", False),
        ("0.5.23", "0.5", True),
        ("0.6.0", "== 0.5", False),
        ("0.6", "!= 0.5", True),
        ("580.95.05", ">= 580, < 590", True),
        (None, ">= 1", False),
        ("fork", ">= 0", False),
    ],
)
def test_versions_are_in_ranges_by_their_numbers(version, wanted, inside):
    assert in_range(version, wanted) is inside


def test_what_is_no_range_is_refused():
    with pytest.raises(RangeError, match=r"needed e\.g\. >= 0\.5, < 0\.6"):
        check_range("new")


@pytest.mark.parametrize(
    ("facts", "architecture"),
    [
        ({"gpu_model": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}, "sm120"),
        ({"gpu_model": "NVIDIA H200"}, "sm90"),
        ({"gpu_model": "NVIDIA A100-SXM4-80GB"}, "sm80"),
        ({"gpu_model": "NVIDIA B200"}, "sm100"),
        ({"gpu_model": "NVIDIA L40S"}, "sm89"),
        ({"gpu_model": "Something else"}, None),
        ({"gpu_model": None}, None),
        ({"gpu_model": "NVIDIA H200", "gpu_architecture": "12.0"}, "sm120"),  # who says it knows it
    ],
)
def test_a_gpus_architecture_is_told_by_its_name(facts, architecture):
    assert place_of(facts).gpu_architecture == architecture


DEPLOYMENT = Deployment(
    schema_version=1,
    configuration="tp1-ddtree-b12",
    unit="u",
    url="http://127.0.0.1:1",
    engine="sglang",
    adapter="sglang",
    served_model="m",
    model="m",
    tensor_parallelism=1,
    engine_build="sglang 0.5.23",
    flags=FLAGS,
)
PLACE = Place(gpu_model="NVIDIA RTX PRO 6000 Blackwell", gpu_architecture="sm120", driver_version="580.95.05")
CELL = Cell(configuration="tp1-ddtree-b12", workload="code", point=256, repeat=1)


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({"when": "ddtree-budget < 15"}, True),
        ({"when": "ddtree-budget < 15", "gpu_architectures": ["SM_120"]}, True),
        ({"when": "ddtree-budget < 15", "gpu_architectures": ["sm90"]}, False),
        ({"flags": {"ddtree-budget": [8, 12]}}, True),
        ({"flags": {"ddtree-budget": 8}}, False),
        ({"configurations": ["tp1-auto"]}, False),
        ({"models": ["m"], "workloads": ["code"], "engines": ["sglang"]}, True),
        ({"models": ["m"], "workloads": ["context"]}, False),
        ({"models": ["m"], "builds": ">= 0.6"}, False),
        ({"models": ["m"], "drivers": ">= 580, < 590"}, True),
        ({"models": ["m"], "gpu_models": ["NVIDIA H100"]}, False),
    ],
)
def test_all_scopes_that_are_given_must_match(scope, expected):
    quirk = msgspec.convert({"name": "x", "reason": "y", **scope}, Quirk)
    assert covers(quirk, CELL, DEPLOYMENT, PLACE) is expected


def test_a_quirk_ends_after_its_last_day():
    quirk = Quirk(name="x", reason="y", when="a", expires="2027-01-31")
    assert not has_expired(quirk, date(2027, 1, 31))
    assert has_expired(quirk, date(2027, 2, 1))
    assert not has_expired(msgspec.structs.replace(quirk, expires=None), date(2099, 1, 1))
