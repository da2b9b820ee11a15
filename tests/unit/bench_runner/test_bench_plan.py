"""A plan that isn't right is refused with key, find and nearest word; a right one is expanded."""

import copy
from pathlib import Path

import pytest
import yaml
from bench_runner.cells import expand, traffic, why_not_fitting
from bench_runner.cli import main
from bench_runner.errors import PlanError
from bench_runner.plan_check import check_plan, load_plan

ROOT = Path(__file__).resolve().parents[3]

PLAN = {
    "schema_version": 1,
    "name": "lab",
    "baseline": "tp1-auto",
    "configurations": ["tp1-auto", "tp1-ngram-mod"],
    "workloads": {
        "code": {"points": [64, 256], "requests": 2},
        "context": {"points": [256, 1024], "output_tokens": 16},
        "concurrency": {"points": [4], "requests_per_client": 3},
        "agentic": {"points": [4], "conversations": 2},
    },
}


def changed(path: str, value: object) -> dict:
    plan = copy.deepcopy(PLAN)
    *way, last = path.split(".")
    at = plan
    for step in way:
        at = at[step]
    at[last] = value
    return plan


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("worklods", {}, "worklods: unknown key; did you mean 'workloads'?"),
        ("workloads.cod", {"points": [1]}, "workloads.cod: unknown key; did you mean 'code'?"),
        ("workloads.code.point", [1], "workloads.code.point: unknown key; did you mean 'points'?"),
        ("workloads.code.points", [], "workloads.code.points: found [] (list), needed array of length >= 1"),
        ("workloads.code.points", [1, "x"], "workloads.code.points[1]: found 'x' (str), needed int"),
        ("workloads.code.points", [64, 64], "workloads.code.points[1]: 64 stands there twice"),
        ("workloads.code.requests", 0, "workloads.code.requests: found 0 (int), needed int >= 1"),
        ("workloads.code.requests", True, "workloads.code.requests: found True (bool), needed int"),
        ("workloads", {}, "workloads: found none, needed at least one of code, context"),
        (
            "baseline",
            "tp1-aut",
            "baseline: 'tp1-aut' is none of the configurations; did you mean 'tp1-auto'?",
        ),
        ("configurations", ["tp1-auto", "tp1-ngram-mode"], "'tp1-ngram-mode' is not deployed; did you mean"),
        ("configurations", ["tp1-auto", "tp1-auto"], "configurations[1]: 'tp1-auto' stands there twice"),
        ("configurations", "tp1-auto", "configurations: found 'tp1-auto' (str), needed array"),
        ("name", 7, "name: found 7 (int), needed str"),
        ("name", "a b", "name: found 'a b' (str), needed str matching"),
        ("limits", {"cell": 3}, "limits.cell: unknown key; did you mean 'cell_s'?"),
        ("limits", {"cell_s": "long"}, "limits.cell_s: found 'long' (str), needed float"),
        ("canary", {"output_tokens": 16}, "canary.output_tokens: found 16 (int), needed int >= 32"),
        ("schema_version", 2, "schema_version: found 2, this runner knows 1 and older"),
        ("schema_version", 0, "schema_version: found 0 (int), needed schema_version 1"),
        ("quirks", [{"name": "x", "reason": "y"}], "quirks[0] (x): no scope; needed configurations or flags"),
        (
            "quirks",
            [{"name": "x", "reason": "y", "configurations": ["tp1-ato"]}],
            "quirks[0] (x): configuration 'tp1-ato' is not deployed; did you mean 'tp1-auto'?",
        ),
        ("quirks", [{"name": "x", "reasn": "y"}], "quirks[0].reasn: unknown key; did you mean 'reason'?"),
    ],
)
def test_a_wrong_plan_is_refused_with_a_sentence(path, value, sentence):
    with pytest.raises(PlanError) as refused:
        check_plan(
            changed(path, value), source="plan.yml", known_configurations=["tp1-auto", "tp1-ngram-mod"]
        )
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("plan.yml: ")


def test_a_missing_key_is_named():
    with pytest.raises(PlanError, match="baseline: missing"):
        check_plan({key: value for key, value in PLAN.items() if key != "baseline"})


def test_several_wrong_words_are_all_named():
    plan = changed("workloads.code.point", [1])
    plan["repeat"] = 1
    with pytest.raises(PlanError) as refused:
        check_plan(plan)
    assert len(refused.value.problems) == 2


@pytest.mark.parametrize("raw", [None, [], "x", 3], ids=["empty", "list", "text", "number"])
def test_what_is_no_plan_is_refused(raw):
    with pytest.raises(PlanError, match="needed a mapping"):
        check_plan(raw)


def test_a_file_that_is_no_yaml_is_refused(tmp_path):
    path = tmp_path / "plan.yml"
    path.write_text("name: [")
    with pytest.raises(PlanError, match="not YAML"):
        load_plan(path)
    with pytest.raises(PlanError, match="No such file"):
        load_plan(tmp_path / "none.yml")


@pytest.mark.parametrize("group", ["lab", "fleet"])
def test_the_projects_own_plans_are_right_and_fit(group):
    plan = check_plan(yaml.safe_load((ROOT / f"group_vars/{group}/plan.yml").read_text())["plan"])
    described = yaml.safe_load((ROOT / f"group_vars/{group}/configurations.yml").read_text())[
        "configurations"
    ]
    assert set(plan.configurations) <= set(described)
    for cell in expand(plan):
        assert why_not_fitting(plan, cell, described[cell.configuration]["context_tokens"]) is None


def test_cells_come_configuration_by_configuration_and_repeats_apart():
    plan = check_plan({**PLAN, "repeats": 2})
    names = [cell.name for cell in expand(plan)]
    assert len(names) == len(set(names)) == 2 * 2 * 6
    assert names[:3] == ["tp1-auto.code.64.r1", "tp1-auto.code.256.r1", "tp1-auto.context.256.r1"]
    assert names[6] == "tp1-auto.code.64.r2"
    assert names[12].startswith("tp1-ngram-mod")


def test_traffic_counts_every_request():
    plan = check_plan(PLAN)
    sent = {name: traffic(plan, name, point).requests for name, point in [("code", 64), ("concurrency", 4)]}
    assert sent == {"code": 2, "concurrency": 12}
    agentic = traffic(plan, "agentic", 4)
    assert (agentic.requests, agentic.clients) == (8, 2)
    assert agentic.largest_prompt == 64 + 3 * (24 + 24)


@pytest.mark.parametrize(
    ("workload", "point", "sentence"),
    [
        (
            "code",
            500,
            "prompt 48 + output 500 = 548 tokens, the context is 512; the largest that fits is 464 output",
        ),
        (
            "context",
            500,
            "prompt 500 + output 16 = 516 tokens, the context is 512; the largest that fits is 496",
        ),
        ("agentic", 11, "the largest that fits is 9 turns"),
        ("concurrency", 1, None),
    ],
)
def test_what_cannot_fit_is_named_with_the_largest_that_fits(workload, point, sentence):
    plan = check_plan(changed(f"workloads.{workload}.points", [point]))
    cell = next(cell for cell in expand(plan) if cell.workload == workload)
    found = why_not_fitting(plan, cell, 512)
    assert (found is None) if sentence is None else (sentence in found)
    if workload == "agentic":
        smaller = check_plan(changed("workloads.agentic.points", [9]))
        fitting = next(cell for cell in expand(smaller) if cell.workload == workload)
        assert why_not_fitting(smaller, fitting, 512) is None


def test_validate_says_what_is_wrong_and_exits_with_2(tmp_path, capsys):
    path = tmp_path / "plan.yml"
    path.write_text(yaml.safe_dump(changed("worklods", {})))
    assert main(["validate", str(path), "--known", "tp1-auto", "tp1-ngram-mod"]) == 2
    assert "worklods: unknown key; did you mean 'workloads'?" in capsys.readouterr().err
    path.write_text(yaml.safe_dump(PLAN))
    assert main(["validate", str(path)]) == 0
