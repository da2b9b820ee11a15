import json
from pathlib import Path

import jsonschema
import pytest
from recovery_report.record import Record, merge, write_whole

SCHEMA = json.loads((Path(__file__).parents[3] / "collector/schemas/recovery.schema.json").read_text())


def test_lists_are_appended_and_the_source_is_left_alone():
    step = {"step": "fix_config", "changed": True, "seconds": 0.2, "outcome": "done"}
    first = {"steps": [step]}
    into: dict = {}

    merge(into, first)
    merge(into, {"steps": [{**step, "step": "restart_container"}], "bench": {"ok": 3}})

    assert [entry["step"] for entry in into["steps"]] == ["fix_config", "restart_container"]
    assert first == {"steps": [step]}


def test_the_document_follows_its_schema():
    record = Record(started_at="2026-11-30T19:00:00Z", command="ansible-playbook recover-and-bench.yml")
    cause = {"name": "uvm_major_not_allowed", "severity": "repairable", "sentence": "nvidia-uvm moved"}
    record.add("ct200", {"causes": [cause]})
    record.problem("ct200", "Repair", "configure | Restart", "locked")
    record.line("Repair", "ct200", "fixed")
    rows = [{"stage": "Wait", "seconds": 1.0, "ansible_s": 0.5, "waited_s": {"boot": 0.5}}]

    document = record.document(outcome="failed", ended_at="2026-11-30T19:01:00Z", stages=rows)

    jsonschema.validate(document, SCHEMA)


def test_a_stage_has_one_line_a_node_the_last_one():
    record = Record(started_at="2026-11-30T19:00:00Z", command="")
    record.line("Repair", "ct200", "broken")
    record.line("Repair", "ct201", "healthy")
    record.line("Repair", "ct200", "repaired")

    assert record.lines == [("Repair", "ct201", "healthy"), ("Repair", "ct200", "repaired")]


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "recovery.json"
    write_whole(path, "old")

    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")

    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["recovery.json"]
