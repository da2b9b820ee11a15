"""The plans that come with the project: as the schema says, within every context, in the story's order."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from bench_runner.cells import Cell, expand, quick_cells
from bench_runner.deployment import Deployment
from bench_runner.plan_check import check_plan
from bench_runner.plan_contradictions import other_models
from bench_runner.plan_schema import as_text
from bench_runner.quirks.scope import Place, covers
from bench_runner.refusals import cell_refusal, draft_reserve

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "collector/schemas/plan.schema.json"
BLACKWELL = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def group(name):
    plans = yaml.safe_load((ROOT / f"group_vars/{name}/plans.yml").read_text())
    described = yaml.safe_load((ROOT / f"group_vars/{name}/configurations.yml").read_text())["configurations"]
    return plans["plans"], described


def deployment(name, described, **changes):
    """As the role describes it: the fork's names for the flags, the draft by name and digest."""
    flags = {
        f"speculative-{key}" if key == "ddtree-budget" else key: value
        for key, value in described.get("flags", {}).items()
    }
    if described.get("draft_model"):
        flags["speculative-draft-model-path"] = f"{described['draft_model']}@{'0' * 12}"
    return Deployment(
        schema_version=1,
        configuration=name,
        unit=f"inference-{name}.service",
        url="http://127.0.0.1:30000",
        engine=described["engine"],
        adapter="sglang",
        served_model=described["model"],
        model=described["model"],
        tensor_parallelism=described["tensor_parallelism"],
        context_tokens=described["context_tokens"],
        flags=flags,
        **changes,
    )


SHIPPED = [(name, plan) for name in ("lab", "fleet") for plan in group(name)[0]]


@pytest.mark.parametrize(("name", "plan_name"), SHIPPED)
def test_a_plan_is_as_the_schema_says_and_every_cell_fits(name, plan_name):
    plans, described = group(name)
    raw = plans[plan_name]
    jsonschema.validate(raw, json.loads(SCHEMA.read_bytes()))
    plan = check_plan(raw, known_configurations=described)
    assert list(other_models(plan, {each: value["model"] for each, value in described.items()})) == []
    assert plan.name == plan_name
    for cell in expand(plan):
        assert cell_refusal(plan, cell, deployment(cell.configuration, described[cell.configuration])) is None
    assert quick_cells(plan)


def test_the_schema_is_what_the_runner_checks_by():
    assert SCHEMA.read_text() == as_text(), (
        "python -m bench_runner schema > collector/schemas/plan.schema.json"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"worklods": {}},
        {"repeats": 0},
        {"name": 7},
        {"workloads": {"code": {"points": []}}},
        {"order": "random"},
    ],
    ids=str,
)
def test_the_schema_refuses_what_the_runner_refuses(change):
    raw = {**group("lab")[0]["lab-small"], **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(raw, json.loads(SCHEMA.read_bytes()))


def test_the_storys_campaign_goes_from_one_gpu_to_eight_and_holds_back_what_crashes_on_sm120():
    plans, described = group("fleet")
    plan = check_plan(plans["qwen3.6-27b"])
    kinds = ["auto", "dflash-linear", *(f"ddtree-b{budget}" for budget in (8, 12, 15, 16, 32, 64))]
    assert plan.configurations == [f"tp{tp}-{kind}" for tp in (1, 4, 8) for kind in kinds]
    assert plan.workloads.code.points == [256, 1024, 2048]
    assert (min(plan.workloads.context.points), max(plan.workloads.context.points)) == (3000, 25000)
    assert (min(plan.workloads.concurrency.points), max(plan.workloads.concurrency.points)) == (1, 64)
    assert plan.workloads.agentic

    [quirk] = plan.quirks
    assert "illegal instruction" in quirk.evidence

    def held(place):
        return {
            name
            for name in plan.configurations
            if covers(
                quirk,
                Cell(configuration=name, workload="code", point=256, repeat=1),
                deployment(name, described[name]),
                place,
            )
        }

    sm120 = held(Place(gpu_model=BLACKWELL, gpu_architecture="sm120"))
    assert sm120 == {f"tp{tp}-ddtree-b{budget}" for tp in (1, 4, 8) for budget in (8, 12)}
    assert held(Place(gpu_model="NVIDIA H100", gpu_architecture="sm90")) == set()


def test_the_large_model_is_measured_with_and_without_eagle3_at_tp8():
    plans, described = group("fleet")
    plan = check_plan(plans["kimi-k2.6"])
    assert [described[name]["tensor_parallelism"] for name in plan.configurations] == [8, 8]
    flags = [deployment(name, described[name]).flags for name in plan.configurations]
    assert [each.get("speculative-algorithm") for each in flags] == [None, "EAGLE3"]
    assert [draft_reserve(each) for each in flags] == [0, 4]


@pytest.mark.parametrize(
    ("prompt", "output", "sentence"),
    [
        # The story's "30k" prompts were 32,700 tokens by the model's own tokenizer.
        (
            32700,
            256,
            "prompt 32700 + output 256 = 32956 tokens, the context is 32768; the largest that fits is 32512",
        ),
        (30000, 2048, None),
        (32512, 256, None),
        (32513, 256, "the largest that fits is 32512 prompt tokens"),
    ],
)
def test_the_storys_30k_prompts(prompt, output, sentence):
    raw = {
        **group("fleet")[0]["qwen3.6-27b"],
        "workloads": {"context": {"points": [prompt], "output_tokens": output}},
    }
    del raw["quick"]
    plan = check_plan(raw)
    described = group("fleet")[1]
    refusal = cell_refusal(plan, expand(plan)[0], deployment("tp1-auto", described["tp1-auto"]))
    assert (
        (refusal is None)
        if sentence is None
        else (refusal.code == "does_not_fit" and sentence in refusal.detail)
    )


def test_drafts_take_room_in_the_context():
    raw = {
        **group("fleet")[0]["qwen3.6-27b"],
        "workloads": {"context": {"points": [32512], "output_tokens": 256}},
    }
    del raw["quick"]
    plan = check_plan(raw)
    described = group("fleet")[1]
    cell = next(cell for cell in expand(plan) if cell.configuration == "tp1-ddtree-b64")
    refusal = cell_refusal(plan, cell, deployment(cell.configuration, described[cell.configuration]))
    assert "prompt 32512 + output 256 + draft reserve 64 = 32832 tokens" in refusal.detail
    assert "the largest that fits is 32448 prompt tokens" in refusal.detail
