"""What `plan` says before anything runs: how long, by what was measured before; what is refused, and why."""

import json
import time

import pytest
import yaml
from bench_runner.cli import main
from bench_runner.earlier import read_earlier
from bench_runner.plan_view import span

from tests.unit.bench_runner.campaign_words import two_plan
from tests.unit.bench_runner.conftest import SMALL_PLAN

PLENTY = {"context": {"points": [100, 200, 4000], "output_tokens": 16}}


def ask(bench, capsys, *words, **files):
    arguments = ["plan", f"--dir={bench.folder.root}", f"--configurations={bench.configurations}", *words]
    capsys.readouterr()
    assert main([*arguments, *(f"--{name}={path}" for name, path in files.items())]) == 0
    return capsys.readouterr().out


def asked(bench, capsys, *words):
    found = json.loads(ask(bench, capsys, "--json", *words))
    return found, {cell["cell"]: cell for cell in found["cells"]}


def environment(bench, facts=None, **more):
    bench.folder.environment.write_text(
        json.dumps({"node": "ct200", "host": "pve", "host_facts": facts or {}, **more})
    )


def test_what_nothing_tells_of_is_unknown_and_said_so(bench, capsys):
    bench.simulate("tp1-auto")
    found, cells = asked(bench, capsys)
    assert found["expected_s"] is None
    assert found["duration"] == "how long is not known: nothing like it was measured on this node"
    assert cells["tp1-auto.code.8.r1"]["expected"]["by"] == "unknown"


def test_a_cell_that_was_measured_before_takes_as_long_again(bench, capsys):
    bench.simulate("tp1-auto")
    bench.run()
    seconds = bench.cell("tp1-auto.code.8.r1").duration_s
    bench.folder.journal.unlink()  # the campaign is forgotten, its files are not
    found, cells = asked(bench, capsys)
    expected = cells["tp1-auto.code.8.r1"]["expected"]
    assert (expected["by"], expected["seconds"]) == ("same", pytest.approx(seconds))
    assert expected["low_s"] < seconds < expected["high_s"]
    assert found["forecast"]["known"] == 2
    assert "1 load of unknown length" in found["duration"]


def test_another_campaign_of_the_node_tells_too(bench, capsys):
    bench.simulate("tp1-auto")
    bench.run()
    first = bench.cell("tp1-auto.code.16.r1").duration_s
    bench.folder = type(bench.folder)(bench.folder.root.parent / "other")
    bench.folder.root.mkdir()
    environment(bench)
    bench.plan(SMALL_PLAN, name="other")
    found, cells = asked(bench, capsys)
    assert cells["tp1-auto.code.16.r1"]["expected"]["seconds"] == pytest.approx(first)
    assert found["expected_s"] > first
    assert found["forecast"]["unknown_loads"] == 0


def test_else_the_nearest_configuration_with_that_workload_tells_scaled_by_the_work(bench, capsys):
    bench.plan(SMALL_PLAN, configurations=["tp1-auto"])
    bench.simulate("tp1-auto", flags={"algorithm": "none", "a": 1})
    bench.run()
    two_plan(bench, workloads={"code": {"points": [16, 32], "requests": 4, "prompt_tokens": 48}})
    bench.simulate("tp1-ddtree-b8", flags={"algorithm": "ddtree", "a": 1})
    found, cells = asked(bench, capsys)
    near = cells["tp1-ddtree-b8.code.32.r1"]["expected"]
    assert (near["by"], near["like"]) == ("near", "tp1-auto code/16")
    measured = bench.cell("tp1-auto.code.16.r1").duration_s
    assert near["seconds"] == pytest.approx(measured * (4 * (32 + 48 / 50)) / (2 * (16 + 48 / 50)))
    assert near["low_s"] == pytest.approx(near["seconds"] / 2)
    assert found["duration"].startswith("about ")
    said = ask(bench, capsys)
    assert "; time by tp1-auto code/16" in said
    assert "= measured before   ~ by the nearest that was measured   ? nothing like it was" in said


def test_another_model_tells_nothing(bench, capsys):
    bench.simulate("tp1-auto")
    bench.run()
    bench.simulate("tp1-auto", model="other", model_digest="1" * 64)
    assert asked(bench, capsys)[1]["tp1-auto.code.8.r1"]["expected"]["by"] == "unknown"


@pytest.mark.parametrize(
    ("described", "gpus", "refusal"),
    [
        (
            {"tensor_parallelism": 4},
            2,
            "too_few_gpus: tensor parallelism 4 needs 4 GPUs, this node has 2",
        ),
        (
            {"flags": {"speculative-algorithm": "DFLASH"}},
            None,
            "draft_model_missing: DFLASH needs a draft model, and none is named",
        ),
        (
            {"flags": {"speculative-algorithm": "DFLASH", "speculative-draft-model-path": "tiny-draft@abc"}},
            None,
            "draft_model_missing: the draft model tiny-draft is not at /dev/shm/no-such-folder/tiny-draft",
        ),
    ],
    ids=["too few GPUs", "no draft named", "draft not staged"],
)
def test_a_configuration_that_cannot_run_is_refused_cell_by_cell(bench, capsys, described, gpus, refusal):
    two_plan(bench)
    bench.simulate("tp1-auto")
    bench.simulate("tp1-ddtree-b8", model_path="/dev/shm/no-such-folder/sim", **described)
    environment(bench, {"gpu_count": gpus})
    code = refusal.partition(":")[0]
    found, cells = asked(bench, capsys)
    assert found["counts"] == {"run": 2, "skip": 2}
    assert {each["code"] for each in found["refused"]} == {code}
    assert cells["tp1-ddtree-b8.code.8.r1"]["why"].startswith(refusal)
    assert f"refused: 2 {code}" in ask(bench, capsys)
    bench.run()
    assert bench.cell("tp1-ddtree-b8.code.8.r1").reasons[0].code == code
    assert ("start", "tp1-ddtree-b8") not in bench.control.asked


def test_before_the_models_are_staged_none_is_missed_but_room_is(bench, capsys):
    flags = {"speculative-algorithm": "DFLASH", "speculative-draft-model-path": "draft@abc"}
    bench.simulate("tp1-auto", flags=flags, model_path="/dev/shm/no-such-model")
    assert asked(bench, capsys, "--not-staged")[0]["counts"] == {"run": 2}
    environment(bench, model_bytes={"sim": 2**50, "draft": 2**40})
    found, cells = asked(bench, capsys, "--not-staged")
    assert found["refused"][0]["code"] == "shm_too_small"
    assert "sim and draft need 1049600.0 GiB, /dev/shm holds" in cells["tp1-auto.code.8.r1"]["why"]


def test_prompts_that_do_not_fit_are_named_with_the_largest_that_does(bench, capsys):
    bench.plan(SMALL_PLAN, workloads=PLENTY)
    bench.simulate("tp1-auto", flags={"speculative-algorithm": "NGRAM", "speculative-num-draft-tokens": 8})
    found, cells = asked(bench, capsys)
    assert found["counts"] == {"run": 2, "skip": 1}
    assert cells["tp1-auto.context.4000.r1"]["code"] == "does_not_fit"
    assert (
        "prompt 4000 + output 16 + draft reserve 8 = 4024 tokens, the context is 2048; "
        "the largest that fits is 2024 prompt tokens" in cells["tp1-auto.context.4000.r1"]["why"]
    )


def test_the_table_is_one_line_a_cell(bench, capsys):
    bench.plan(SMALL_PLAN, workloads=PLENTY)
    bench.simulate("tp1-auto")
    lines = ask(bench, capsys).splitlines()
    assert lines[0] == "Campaign small on ct200: 3 cells"
    assert [line.split()[1:4] for line in lines[2:5]] == [
        ["tp1-auto", "context/100", "run"],
        ["tp1-auto", "context/200", "run"],
        ["tp1-auto", "context/4000", "skip"],
    ]
    assert lines[-1].startswith("3 cells: 2 to run, 1 skipped; ")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (119, "119 s"), (300, "5 min"), (7200, "2.0 h"), (100000, "27.8 h")]
)
def test_spans_are_said_in_their_own_size(seconds, words):
    assert span(seconds) == words


def test_a_file_that_cannot_be_read_only_makes_a_poorer_forecast(tmp_path):
    (tmp_path / "c/cells").mkdir(parents=True)
    (tmp_path / "c/cells/a.json").write_text("{")
    (tmp_path / "c/journal.jsonl").write_text('{"schema_version": 99}\n')
    found = read_earlier(tmp_path)
    assert (found.cells, found.loads_s) == ([], {})
    assert read_earlier(tmp_path / "none").cells == []


@pytest.mark.long
def test_ten_thousand_cells_take_less_than_two_seconds(bench, capsys):
    """Half of them measured before in another campaign, each with a file of its own."""
    names = [f"tp1-auto-{number}" for number in range(100)]
    for name in names:
        bench.simulate(name, flags={"budget": name})
    bench.simulate("tp1-auto")
    bench.plan(SMALL_PLAN)
    bench.run()
    sample = json.loads(bench.folder.cell("tp1-auto.code.8.r1").read_text())
    past = bench.folder.root.parent / "past/cells"
    past.mkdir(parents=True)
    for number in range(5000):
        identity = {**sample["fingerprint"]["identity"], "flags": {"budget": number % 70}}
        cell = {**sample, "point": number + 1, "content_hash": f"{number:064x}"}
        cell["fingerprint"] = {**sample["fingerprint"], "identity": identity}
        (past / f"cell{number}.json").write_text(json.dumps(cell))
    bench.folder.plan.write_text(
        yaml.safe_dump(
            {
                **SMALL_PLAN,
                "baseline": names[0],
                "configurations": names,
                "workloads": {"code": {"points": list(range(1, 101))}},
                "quirks": [{"name": "x", "reason": "y", "when": "budget == tp1-auto-7 and not other"}],
            }
        )
    )
    started = time.process_time()
    found, _ = asked(bench, capsys)
    assert time.process_time() - started < 2
    assert len(found["cells"]) == 10_000
    assert found["counts"] == {"run": 9_900, "skip": 100}
    assert found["forecast"]["known"] == 9_900
