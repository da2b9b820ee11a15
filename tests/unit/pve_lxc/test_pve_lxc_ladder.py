"""Which steps a diagnosis needs, and how the repair closes."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pve_lxc_scratch import ROLE, load

ladder = load(ROLE / "filter_plugins/pve_lxc_ladder.py")
closing = load(ROLE / "action_plugins/pve_lxc_report.py")


def cause(name, repair, severity="repairable"):
    return {"name": name, "severity": severity, "sentence": f"{name} it is.", "proof": {}, "repair": repair}


def diagnosis(*causes, container="running", verdict="repairable"):
    return {
        "verdict": verdict if causes else "healthy",
        "node": "ct200",
        "vmid": 200,
        "link": {"host": "up", "container": container},
        "causes": list(causes),
    }


UVM = cause("uvm_major_not_allowed", "fix_config")
NO_START = cause("devn_without_host_node", None, "needs_person")
FIXED = {"fix_config": {"config_changed": True}}


@pytest.mark.parametrize(
    ("found", "done", "needed"),
    [
        pytest.param(diagnosis(), {}, [], id="healthy"),
        pytest.param(diagnosis(UVM), {}, ["fix_config"], id="named"),
        pytest.param(
            diagnosis(UVM, cause("uvm_module_not_loaded", "load_modules")),
            {},
            ["load_modules", "fix_config"],
            id="cheapest-first",
        ),
        pytest.param(diagnosis(UVM), FIXED, ["hot_plug", "restart_container"], id="a-changed-file"),
        pytest.param(
            diagnosis(UVM), {"fix_config": {"config_changed": False}}, [], id="a-file-that-was-right-already"
        ),
        pytest.param(
            diagnosis(UVM),
            {"fix_config": {"config_changed": False, "deferred": {"dev0": "/dev/nvidia0"}}},
            ["hot_plug", "restart_container"],
            id="devn-left-to-the-hot-plug",
        ),
        pytest.param(
            diagnosis(UVM), {**FIXED, "hot_plug": {"changed": False}}, ["restart_container"], id="no-plug"
        ),
        pytest.param(
            diagnosis(cause("config_not_applied", "restart_container")),
            {**FIXED, "hot_plug": {"changed": True}},
            ["restart_container"],
            id="plugged-and-the-probe-says-restart",
        ),
        pytest.param(
            diagnosis(cause("config_not_applied", "restart_container")),
            {},
            ["hot_plug", "restart_container"],
            id="right-file-older-container",
        ),
        pytest.param(
            diagnosis(cause("node_not_a_device", "restart_container")),
            {"load_modules": {"changed": True}},
            ["fix_config", "restart_container"],
            id="the-file-before-the-only-restart",
        ),
        pytest.param(
            diagnosis(cause("library_mismatch", None, "needs_person"), verdict="needs_person"),
            {**FIXED, "hot_plug": {"changed": True}},
            [],
            id="a-person-is-needed",
        ),
        pytest.param(
            diagnosis(UVM, cause("container_stopped", "start_container"), container="stopped"),
            FIXED,
            ["start_container"],
            id="stopped",
        ),
        pytest.param(
            diagnosis(UVM, NO_START, verdict="needs_person"),
            FIXED,
            ["hot_plug"],
            id="would-not-start-again",
        ),
        pytest.param(
            diagnosis(UVM, cause("container_stopped", "start_container"), NO_START, container="stopped"),
            {},
            ["fix_config"],
            id="it-will-not-start",
        ),
        pytest.param(
            diagnosis(cause("gpu_fell_off_bus", "reboot_host"), NO_START), {}, [], id="nor-after-a-reboot"
        ),
        pytest.param(
            diagnosis(cause("devn_without_host_node", "make_nodes"), container="stopped"),
            {"make_nodes": {"changed": True}},
            [],
            id="a-node-that-can-be-made",
        ),
        pytest.param(
            diagnosis(cause("gpu_fell_off_bus", "reboot_host"), UVM),
            {},
            ["fix_config", "reboot_host"],
            id="reboot",
        ),
        pytest.param(
            diagnosis(cause("stale", "fix_config", "note"), verdict="repairable"),
            {},
            [],
            id="notes-need-nothing",
        ),
    ],
)
def test_steps_needed(found, done, needed):
    assert ladder.steps_needed(found, done) == needed


def test_no_hot_plug_where_it_is_switched_off():
    assert ladder.steps_needed(diagnosis(UVM), FIXED, hot_plug_enabled=False) == ["restart_container"]


def test_a_file_in_a_nodes_place_is_a_step_only_when_it_may_go():
    found = diagnosis(cause("host_node_not_a_device", None, "needs_person"), verdict="needs_person")
    assert ladder.steps_needed(found, {}) == []
    assert ladder.steps_needed(found, {}, replace_files=True) == ["make_nodes"]


@pytest.mark.parametrize(
    ("step", "result", "due"),
    [
        ("load_modules", {"changed": True}, True),
        ("load_modules", {"changed": False}, True),
        ("fix_config", {"changed": True, "config_changed": True}, False),
        ("fix_config", {"changed": False, "config_changed": False, "deferred": {"dev0": "x"}}, False),
        ("fix_config", {"changed": False, "config_changed": False}, True),
        ("hot_plug", {"changed": True}, True),
        ("hot_plug", {"changed": False}, False),
        ("start_container", {"changed": False}, True),
    ],
)
def test_the_probe_runs_again_where_the_diagnosis_may_be_out_of_date(step, result, due):
    assert ladder.is_probe_due(result, step) is due


def test_each_step_of_the_ladder_has_its_tasks():
    for step in ladder.LADDER:
        assert (ROLE / f"tasks/{step}.yml").is_file()


# The close


def step(name, outcome, *, changed=True):
    return {
        name: {
            "recovery": {"steps": [{"step": name, "changed": changed, "seconds": 1.5, "outcome": outcome}]}
        }
    }


def test_a_healthy_start_needs_one_line():
    result = closing.report(diagnosis(), diagnosis(), {}, check=False)
    assert result["summary"] == "nothing to do: healthy"
    assert result["recovery"]["repair"] == {"before": [], "after": [], "verdict": "healthy"}


def test_a_repair_names_what_changed():
    done = {**step("make_nodes", "all nodes are right", changed=False), **step("fix_config", "allow 511")}
    result = closing.report(diagnosis(UVM), diagnosis(), done, check=False)
    assert result["summary"] == "healthy after fix_config (1.5 s): allow 511"
    assert result["recovery"]["repair"]["before"] == ["uvm_major_not_allowed"]


def test_what_remains_fails_with_every_cause():
    after = diagnosis(UVM, cause("note", None, "note"), verdict="needs_person")
    result = closing.report(diagnosis(UVM), after, step("fix_config", "allow 511"), check=False)
    assert result["failed"]
    assert result["msg"] == (
        "ct200 is not healthy after fix_config (1.5 s): allow 511. What remains:"
        "\n  - uvm_major_not_allowed: uvm_major_not_allowed it is."
    )


def test_check_mode_never_fails_for_a_node_that_is_still_broken():
    result = closing.report(diagnosis(UVM), diagnosis(UVM), step("fix_config", "would allow 511"), check=True)
    assert "failed" not in result
    assert result["summary"] == "would repair: fix_config (1.5 s): would allow 511"


def test_check_mode_says_that_a_restart_may_follow_a_step_on_the_host():
    found = diagnosis(cause("host_node_missing", "make_nodes"))
    done = step("make_nodes", "would make it")
    said = "would repair: make_nodes (1.5 s): would make it"
    after = "; then it is probed again, and the container may need a changed file and a restart"

    assert closing.report(found, found, done, check=True)["summary"] == said + after
    for not_in_doubt in (
        (diagnosis(*found["causes"], container="stopped"), done, said),
        (found, {**done, **step("restart_container", "y")}, f"{said}; restart_container (1.5 s): y"),
    ):
        before, taken, expected = not_in_doubt
        assert closing.report(before, before, taken, check=True)["summary"] == expected


def test_what_something_else_repaired_meanwhile_is_said_so():
    done = step("fix_config", "the file has all it needs", changed=False)
    result = closing.report(diagnosis(UVM), diagnosis(), done, check=False)
    assert result["summary"] == "healthy by now, without a change by this run (it was: uvm_major_not_allowed)"


def test_check_mode_says_where_nothing_can_be_done():
    found = diagnosis(cause("gpu_missing_from_pci", None, "needs_person"), verdict="needs_person")
    result = closing.report(found, found, {}, check=True)
    assert result["summary"] == (
        "nothing that this role can repair: gpu_missing_from_pci: gpu_missing_from_pci it is."
    )
