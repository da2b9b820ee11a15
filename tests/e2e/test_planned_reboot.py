"""A planned reboot: the campaign ends in good order, and afterwards it is said what the reboot changed."""

import json

import pytest
from story import (
    CU_INIT,
    HOST,
    NODE,
    Operator,
    lab,
    ok_cells,
    on,
    right_sum,
    running,
    staged_sum,
    uvm_major,
    wait_until,
)

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(600)]

PREPARE = "playbooks/prepare-reboot.yml"
DIAGNOSE = "playbooks/diagnose.yml"
NOW = ("-e", "prepare_reboot_stop_now=true")


@pytest.fixture(scope="module")
def fresh(_room, tmp_path_factory):
    """A lab of its own, repaired but not measured."""
    lab("up", "--fresh")
    return Operator(tmp_path_factory.mktemp("planned") / "results")


@pytest.fixture
def measuring(fresh):
    """The operator, while a campaign has just finished a cell or two more than before."""
    had = len(ok_cells())
    run = fresh.start()
    wait_until(lambda: len(ok_cells()) >= had + 2, within_s=240, what="two cells measured")
    assert running()
    yield fresh
    # The run that followed the campaign sees it end, and ends too.
    run.communicate(timeout=120)


def ends(status):
    """The cells whose last event in the journal is an end with this status."""
    last = {}
    for line in on(NODE, "cat /var/lib/bench/lab-small/journal.jsonl").splitlines():
        event = json.loads(line)
        if event["event"] == "cell_ended":
            last[event["cell"]] = event["status"]
    return {cell for cell, found in last.items() if found == status}


def test_told_to_stop_now_it_cuts_the_cell_and_keeps_the_finished_ones(measuring):
    before = ok_cells()

    check = measuring.run(PREPARE, "--check", *NOW)
    assert "campaign lab-small would be stopped now" in check.words
    assert running()

    run = measuring.run(PREPARE, *NOW)

    assert run.status == 0
    assert "campaign lab-small has ended" in run.words
    assert not running()
    assert before.items() <= ok_cells().items()
    assert len(ends("interrupted")) <= 1


def test_otherwise_the_running_cell_ends_and_the_evidence_is_kept(measuring):
    before = ok_cells()

    run = measuring.run(PREPARE)

    assert run.status == 0
    assert "campaign lab-small has ended" in run.words
    assert not running()
    assert before.items() < ok_cells().items()
    assert not ends("interrupted")
    assert on(NODE, "systemctl list-units --no-legend 'inference-*.service'") == ""
    kept = json.loads((measuring.results / "evidence/ct200.json").read_text())
    assert kept["verdict"] == "healthy"


def test_after_the_reboot_the_diagnosis_says_what_changed(fresh):
    kernel = on(HOST, "uname -r").strip()
    before = uvm_major()
    lab("reboot-host", HOST, "--uvm-major", "new")

    run = fresh.run(DIAGNOSE, "-e", "gpu_probe_strict=true")

    assert run.status == 2
    assert f"the major of nvidia-uvm was {before} and is {uvm_major()}" in run.words
    assert "ct200: changed since the snapshot: the host was booted again" in run.words
    assert "uvm_major_not_allowed" in run.words
    # The same machine with the same kernel, driver and GPUs: nothing is said of them.
    assert kernel not in "".join(line for line in run.output.splitlines() if "changed since" in line)
    [node] = json.loads((fresh.results / "diagnosis.json").read_text())["nodes"]
    assert {change["what"] for change in node["changes"]} >= {"boot", "majors"}


def test_the_campaign_goes_on_where_it_was_stopped(fresh):
    before = ok_cells()

    run = fresh.run()

    assert run.status == 0
    assert "the major of nvidia-uvm was" in run.words
    assert on(NODE, CU_INIT).strip() == "0"
    assert staged_sum() == right_sum()
    assert before.items() <= ok_cells().items()
    assert {name: cell["reasons"] for name, cell in fresh.cells().items() if cell["status"] != "ok"} == {}
    assert len(fresh.cells()) == 30


def test_a_second_reboot_that_changes_nothing_is_told_from_one_that_does(fresh):
    lab("reboot-host", HOST)

    run = fresh.run(DIAGNOSE, "-e", "gpu_probe_strict=true")

    assert run.status == 0
    assert "the host was booted again" in run.words
    assert "the major of" not in run.words
