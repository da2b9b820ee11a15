"""A plan that isn't right is refused with key, find and nearest word; a right one is expanded."""

import copy

import pytest
import yaml
from bench_runner.cells import definition, expand, quick_cells, traffic, why_not_fitting
from bench_runner.cli import main
from bench_runner.errors import PlanError
from bench_runner.plan_check import check_plan, load_plan

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
        (
            "quirks",
            [{"name": "x", "reason": "y", "when": "budget <"}],
            "quirks[0].when: the condition 'budget <' can't be read at its end: needed a value",
        ),
        (
            "quirks",
            [{"name": "x", "reason": "y", "when": "a", "builds": "new"}],
            "quirks[0].builds: the range 'new' can't be read",
        ),
        (
            "quirks",
            [{"name": "x", "reason": "y", "when": "a", "expires": "soon"}],
            "quirks[0].expires: found 'soon', needed a day such as 2027-01-31",
        ),
        (
            "quirks",
            [{"name": "x", "reason": "y", "when": "a", "verdict": "skp"}],
            "quirks[0].verdict: found 'skp' (str), needed one of skip, warn; did you mean 'skip'?",
        ),
        ("order", "sweep", "order: found 'sweep' (str), needed one of sweeps, points, rounds; did you mean"),
        ("deadline", "8", "deadline: found '8', needed a duration such as 90m or 7h30m"),
        ("deadline", "2026-12-01T06:00", "2026-12-01T06:00 has no zone: write 2026-12-01T06:00+01:00"),
        ("deadline", 1350, "deadline: found 1350 (int), needed a duration such as 90m"),
        (
            "deadline",
            390.0,
            "an hour such as '06:30', a time such as 2026-12-01T06:30+01:00 (in quotes: YAML",
        ),
        ("deadline", "99999999999d", "needed one that comes; no calendar reaches so far"),
        ("limits", {"stall_s": float("inf")}, "limits.stall_s: found inf (float), needed float <= 10000000"),
        (
            "workloads.code.points",
            [10**20],
            "workloads.code.points[0]: found 100000000000000000000 (int), needed",
        ),
        ("seed", 10**20, "seed: found 100000000000000000000 (int), needed int"),
        (
            "workloads.concurrency.points",
            [4, 5000],
            "workloads.concurrency.points[1]: 5000 would make 5000 connections at once, needed at most 4096",
        ),
        (
            "workloads",
            {"rate": {"points": [50], "seconds": 3000}},
            "workloads.rate.points[0]: 50 would make 150000 requests in one cell, needed at most 100000",
        ),
        (
            "quick",
            {"points": {"code": [65]}},
            "quick.points.code[0]: 65 is none of the plan's points; known are 64",
        ),
        (
            "quick",
            {"configurations": ["tp1-aut"]},
            "quick.configurations[0]: 'tp1-aut' is none of the config",
        ),
        ("warm_up", {"requests": 0}, "warm_up.requests: found 0 (int), needed int >= 1"),
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


def test_a_day_that_no_calendar_has_is_refused_by_its_line(tmp_path):
    path = tmp_path / "plan.yml"
    quirk = "  - {name: x, reason: y, when: a,\n     expires: 2026-13-01}\n"
    path.write_text(f"{yaml.safe_dump(PLAN, sort_keys=False)}quirks:\n{quirk}")
    line = path.read_text().count("\n")
    with pytest.raises(PlanError) as refused:
        load_plan(path)
    assert str(refused.value).startswith(
        f"plan.yml:{line}: quirks[0].expires: found '2026-13-01', needed a day"
    )


def test_a_number_that_yaml_cannot_make_is_refused(tmp_path):
    path = tmp_path / "plan.yml"
    path.write_text("name: 0x_\n")
    with pytest.raises(PlanError, match="not YAML"):
        load_plan(path)


def test_a_file_that_is_no_yaml_is_refused(tmp_path):
    path = tmp_path / "plan.yml"
    path.write_text("name: [")
    with pytest.raises(PlanError, match="not YAML"):
        load_plan(path)
    with pytest.raises(PlanError, match="No such file"):
        load_plan(tmp_path / "none.yml")


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


def test_a_file_is_refused_with_the_line_of_each_wrong_key(tmp_path):
    path = tmp_path / "plan.yml"
    path.write_text("name: a\nworkloads:\n  code:\n    points: [1]\n    point: [3]\n  cod: {}\n")
    with pytest.raises(PlanError) as refused:
        load_plan(path)
    assert refused.value.problems == [
        "plan.yml:5: workloads.code.point: unknown key; did you mean 'points'?",
        "plan.yml:6: workloads.cod: unknown key; did you mean 'code'?",
    ]
    path.write_text("name: a\nworkloads: {}\nname: b\n")
    with pytest.raises(PlanError, match=r"plan.yml:3: name: stands there twice \(lines 1 and 3\)"):
        load_plan(path)
    path.write_text(yaml.safe_dump(changed("workloads.code.points", [1, "x"]), sort_keys=False))
    with pytest.raises(PlanError, match=r"plan.yml:11: workloads.code.points\[1\]: found 'x' \(str\)"):
        load_plan(path)


def test_times_and_days_may_stand_without_quotes():
    plan = check_plan(
        yaml.safe_load(
            yaml.safe_dump(PLAN)
            + "deadline: 2026-12-01T06:30:00+01:00\n"
            + "quirks: [{name: x, reason: y, when: a, expires: 2027-01-31}]\n"
        )
    )
    assert (plan.deadline, plan.quirks[0].expires) == ("2026-12-01T06:30:00+01:00", "2027-01-31")


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("sweeps", ["tp1-auto.code.64.r1", "tp1-auto.code.256.r1"]),
        ("points", ["tp1-auto.code.64.r1", "tp1-auto.code.64.r2", "tp1-auto.code.256.r1"]),
    ],
)
def test_the_order_of_repeats_can_be_chosen(order, first):
    names = [cell.name for cell in expand(check_plan({**PLAN, "repeats": 2, "order": order}))]
    assert names[: len(first)] == first
    assert len(set(names)) == 24


def test_rounds_go_through_all_configurations_before_they_repeat():
    cells = expand(check_plan({**PLAN, "repeats": 2, "order": "rounds"}))
    assert [(cell.configuration, cell.repeat) for cell in cells[::6]] == [
        ("tp1-auto", 1),
        ("tp1-ngram-mod", 1),
        ("tp1-auto", 2),
        ("tp1-ngram-mod", 2),
    ]


def test_a_quick_campaign_is_the_baseline_and_one_more_with_a_point_of_each_workload():
    plan = check_plan(PLAN)
    assert len(quick_cells(plan)) == 2 * 4
    chosen = {"configurations": ["tp1-ngram-mod"], "points": {"code": [256], "agentic": [4]}}
    assert quick_cells(check_plan({**PLAN, "repeats": 2, "quick": chosen})) == {
        "tp1-ngram-mod.code.256.r1",
        "tp1-ngram-mod.agentic.4.r1",
    }


def test_a_warm_up_of_its_own_makes_another_measurement_and_the_usual_one_does_not():
    usual, more = check_plan(PLAN), check_plan({**PLAN, "warm_up": {"requests": 3}})
    assert "warm_up" not in definition(usual, "code")
    assert definition(check_plan({**PLAN, "warm_up": {"requests": 1}}), "code") == definition(usual, "code")
    assert definition(more, "code")["warm_up"] == {"requests": 3, "output_tokens": 16}


def test_validate_says_what_is_wrong_and_exits_with_2(tmp_path, capsys):
    path = tmp_path / "plan.yml"
    path.write_text(yaml.safe_dump(changed("worklods", {})))
    assert main(["validate", str(path), "--known", "tp1-auto", "tp1-ngram-mod"]) == 2
    assert "worklods: unknown key; did you mean 'workloads'?" in capsys.readouterr().err
    path.write_text(yaml.safe_dump(PLAN))
    assert main(["validate", str(path)]) == 0
