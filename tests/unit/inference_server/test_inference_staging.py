"""The control socket's verbs about models that take turns in memory."""

import json

import pytest

SWITCH = "model-stage-switch@{}.service"


@pytest.fixture
def node(machine):
    """Three configurations of two sets; the second one's draft goes with it."""
    machine.describe("tp1-auto", model="qwen", draft_model=None)
    machine.describe("tp1-ngram", model="qwen", draft_model="qwen")
    machine.describe("tp8-kimi", model="kimi", draft_model="kimi-draft")
    plan(machine, [["qwen"], ["kimi-draft", "kimi"]])
    return machine


def plan(machine, sets):
    (machine.folder / "plan.json").write_text(json.dumps({"schema_version": 1, "sets": sets}))


def wrote(machine, **fields):
    (machine.folder / "switch.json").write_text(json.dumps({"schema_version": 1, **fields}))


def ask(machine, verb, name="tp8-kimi"):
    return machine.ask({"verb": verb, "configuration": name})


def orders(machine):
    return [call for call in machine.calls if not call.startswith(("show", "list-units", "reset-failed"))]


@pytest.mark.parametrize("verb", ["stage", "staging"])
def test_where_everything_fits_nothing_is_asked_of_systemd(machine, verb):
    answer = ask(machine, verb, "tp1-auto")

    assert (answer["ok"], answer["needed"]) == (True, False)
    assert machine.calls == []


@pytest.mark.parametrize(("name", "number"), [("tp1-auto", 0), ("tp1-ngram", 0), ("tp8-kimi", 1)])
def test_the_switch_to_the_set_of_just_its_models_is_begun_without_waiting(node, name, number):
    answer = ask(node, "stage", name)

    assert (answer["needed"], answer["set"], answer["before"]) == (True, number, "")
    assert orders(node) == [f"--no-ask-password --no-block start -- {SWITCH.format(number)}"]


def test_a_switch_to_another_set_is_stopped_first(node):
    node.write(
        {
            "units": {
                SWITCH.format(0): {"ActiveState": "activating"},
                SWITCH.format(7): {"ActiveState": "failed"},
            }
        }
    )
    wrote(node, run="old", state="staging", set=0)

    answer = ask(node, "stage")

    assert answer["before"] == "old"
    assert orders(node) == [
        f"--no-ask-password stop -- {SWITCH.format(0)}",
        f"--no-ask-password --no-block start -- {SWITCH.format(1)}",
    ]


@pytest.mark.parametrize(("left", "before"), [("now", ""), ("old", "old")])
def test_the_same_switch_that_is_at_work_is_followed(node, left, before):
    node.write({"units": {SWITCH.format(1): {"ActiveState": "activating", "InvocationID": "now"}}})
    wrote(node, run=left, state="staging", set=1)

    assert ask(node, "stage")["before"] == before
    assert orders(node) == []


def test_a_unit_that_is_not_installed_says_what_to_do(node):
    node.write({"units": {}, "refuses": {}})

    assert ask(node, "stage")["error"] == (
        f"{SWITCH.format(1)} cannot be started: Job failed. See journalctl.; run stage.yml"
    )


@pytest.mark.parametrize(
    ("properties", "rests"),
    [
        ({"ActiveState": "activating"}, False),
        ({"ActiveState": "inactive", "Job": "31"}, False),
        ({"ActiveState": "inactive", "Job": "0"}, True),
        ({"ActiveState": "failed", "InvocationID": "now", "ExecMainStatus": "75"}, True),
    ],
)
def test_staging_says_how_it_goes(node, properties, rests):
    node.write({"units": {SWITCH.format(1): properties}})
    (node.folder / "bin/journal").write_text("model_stager: another one is at work\n")
    wrote(node, run="now", state="staging", set=1, progress={"bytes": 1})

    answer = ask(node, "staging")

    assert (answer["rests"], answer["switch"]["progress"]) == (rests, {"bytes": 1})
    failed = properties["ActiveState"] == "failed"
    assert answer["log"] == (["model_stager: another one is at work"] if failed else [])


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (
            lambda node: plan(node, [["qwen"], ["kimi"]]),
            "has no set with just kimi and kimi-draft",
        ),
        (lambda node: (node.folder / "plan.json").write_text("{"), "plan.json cannot be read: "),
        (lambda node: (node.folder / "switch.json").write_text("[]"), "switch.json cannot be read: "),
        (lambda node: wrote(node, schema_version=2), "has the version 2, not 1"),
    ],
    ids=["another plan", "torn plan", "no state", "newer state"],
)
def test_what_cannot_be_understood_is_refused_and_starts_nothing(node, write, said):
    write(node)

    assert said in ask(node, "stage")["error"]
    assert orders(node) == []
