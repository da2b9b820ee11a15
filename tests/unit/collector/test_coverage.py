"""For each cell that was asked for: a figure, or the reason for the hole."""

from __future__ import annotations

import json

import pytest

from collector.coverage import cover, parse_cell_name
from collector.coverage_text import as_json, as_markdown, as_text


def only(read):
    merged = read()
    (found,) = (cover(merged, campaign) for campaign in merged.campaigns)
    return found


def holes(read) -> dict[str, str]:
    return {slot.planned.name: slot.hole for slot in only(read).holes}


def test_a_finished_campaign_has_no_holes(campaign, read):
    campaign.run_all()
    coverage = only(read)
    assert (coverage.ok, coverage.planned, coverage.holes) == (30, 30, ())


def test_each_hole_has_its_reason(campaign, read):
    campaign.run_all(
        tp1_draft__code__64={"status": "crashed", "code": "illegal_instruction"},
        tp1_draft__code__128={"status": "skipped", "code": "quirk", "detail": "quirk b15 on sm_120"},
        tp1_draft__agentic__4={"status": "partial", "code": "client_limited"},
    )
    (campaign.folder / "cells" / "tp1-auto.code.64.r1.json").write_bytes(b"\0\0")
    (campaign.folder / "cells" / "tp1-auto.code.128.r1.json").unlink()
    assert holes(read) == {
        "tp1-auto.code.64.r1": "corrupt",
        "tp1-auto.code.128.r1": "not pulled",
        "tp1-draft.code.64.r1": "crashed (illegal instruction)",
        "tp1-draft.code.128.r1": "skipped (quirk)",
        "tp1-draft.agentic.4.r1": "partial (client limited)",
    }


def test_a_running_campaign_says_what_runs_and_what_is_to_come(campaign, read):
    campaign.write(campaign.cell("tp1-auto", "code", 64))
    campaign.event("cell_started", cell="tp1-auto.code.128.r1", content_hash="0" * 64)
    campaign.status(
        "running",
        current={
            "cell": "tp1-auto.code.128.r1",
            "position": 2,
            "total": 30,
            "phase": "measuring",
            "started_at": "2026-05-14T00:01:00Z",
            "elapsed_s": 3.0,
            "remaining_s": 75.0,
            "output_tps": 25.0,
        },
    )
    found = holes(read)
    assert found["tp1-auto.code.128.r1"] == "running"
    assert set(found.values()) == {"running", "not run"}
    assert "cell 2 of 30: tp1-auto.code.128.r1, measuring, about 1 min 15 s left" in as_text([only(read)])


def test_a_cell_without_an_end_was_interrupted(campaign, read):
    campaign.event("cell_started", cell="tp1-auto.code.64.r1", content_hash="0" * 64)
    campaign.status("stopped")
    assert holes(read)["tp1-auto.code.64.r1"] == "interrupted"


@pytest.mark.parametrize("missing", ["plan.yml", "status.json", "journal.jsonl", "cells"])
def test_a_half_pulled_folder_is_read(campaign, read, missing):
    campaign.run_all()
    path = campaign.folder / missing
    if missing == "cells":
        for cell in path.iterdir():
            cell.unlink()
        path.rmdir()
    else:
        path.unlink()
    coverage = only(read)
    assert coverage.planned == 30
    assert coverage.ok == (0 if missing == "cells" else 30)
    assert any(missing in problem for problem in coverage.campaign.problems) == (missing != "cells")


def test_a_folder_with_only_a_status_is_covered_by_its_todos(campaign, read):
    campaign.run_all(tp1_draft__code__64={"status": "skipped", "detail": "does not fit"})
    for path in [
        *campaign.folder.glob("cells/*"),
        campaign.folder / "plan.yml",
        campaign.folder / "journal.jsonl",
    ]:
        path.unlink()
    coverage = only(read)
    assert coverage.counts == {"not pulled": 29, "skipped": 1}


def test_newer_files_are_refused_by_name(campaign, read):
    campaign.run_all()
    status = campaign.folder / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"schema_version": 7}))
    journal = campaign.folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"schema_version":1', b'"schema_version":3', 1))
    problems = " ".join(only(read).campaign.problems)
    assert "status.json: its schema version is 7, the newest that this program reads is 1" in problems
    assert "journal.jsonl: line 1 has schema version 3" in problems


@pytest.mark.parametrize(
    "plan",
    [
        "",
        "[1, 2",
        "configurations: []",
        "configurations: [a]\nworkloads: {nope: {points: [1]}}",
        "a: &a [*a]",
    ],
)
def test_a_plan_that_makes_no_sense_is_a_problem_in_words(campaign, read, plan):
    campaign.run_all()
    (campaign.folder / "plan.yml").write_text(plan)
    coverage = only(read)
    assert coverage.ok == 30
    assert any(problem.startswith("plan.yml: ") for problem in coverage.campaign.problems)


def test_json_and_markdown_say_the_same(campaign, read):
    campaign.run_all(tp1_draft__code__64={"status": "crashed", "code": "oom", "detail": "out | of <memory>"})
    coverage = only(read)
    (content,) = json.loads(as_json([coverage]))
    assert (content["ok"], content["planned"], content["state"]) == (29, 30, "finished")
    (hole,) = [cell for cell in content["cells"] if cell["status"] != "ok"]
    assert hole == {
        "cell": "tp1-draft.code.64.r1",
        "status": "crashed",
        "reason_code": "oom",
        "reason": "out | of <memory>",
    }
    assert r"- [ ] tp1-draft.code.64.r1: crashed (oom: out \| of \<memory\>)" in as_markdown([coverage])


@pytest.mark.parametrize("name", ["", "a.b", "a.code.1.r", "a.nope.1.r1", "../a.code.1.r1", "a.code.1.r1\n"])
def test_a_name_that_is_no_cell_is_no_cell(name):
    assert parse_cell_name(name) is None
