"""Which file speaks for a cell, and which environments stay apart."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.campaigns import scan
from collector.environments import differences, flatten
from collector.frames import points_frame
from collector.layout import Layout
from collector.merge import merge
from collector.publish import write_merged, write_quarantine
from collector.request_table import write_requests
from collector.sections import sections
from tests.unit.collector.result_builder import COMPARABILITY, CampaignBuilder
from tests.unit.collector.test_cell_door import mutated_cells, schema


def rows_of(path) -> list[dict[str, str]]:
    with path.open(newline="") as source:
        return list(csv.DictReader(source))


def aside(campaign, content, mark: str):
    """Write a cell and put it where the runner keeps earlier attempts."""
    folder = campaign.folder / "superseded"
    folder.mkdir(exist_ok=True)
    path = campaign.write(content)
    return path.rename(folder / f"{content['cell']}.{mark}.json")


def test_the_newest_good_attempt_speaks_and_all_are_kept(campaign, read):
    aside(campaign, campaign.cell("tp1-auto", "code", 64, factor=0.9), "x.a1")
    aside(campaign, campaign.cell("tp1-auto", "code", 64, attempt=2), "x.a2")
    campaign.write(campaign.cell("tp1-auto", "code", 64, status="failed", attempt=3))
    merged = read()
    assert [(row.cell.attempt, row.current) for row in merged.rows] == [(3, False), (1, False), (2, True)]
    assert all(row.note for row in merged.rows if not row.current)


def test_the_same_content_twice_is_no_second_measurement(campaign, read):
    content = campaign.cell("tp1-auto", "code", 64)
    copy = aside(campaign, content, "copy")
    assert campaign.write(content).read_bytes() == copy.read_bytes()
    merged = read()
    assert sorted((row.judged.verdict, row.current) for row in merged.rows) == [
        ("duplicate", False),
        ("whole", True),
    ]


def test_an_older_identity_does_not_speak_for_the_newer_one(campaign, read):
    aside(campaign, campaign.cell("tp1-auto", "code", 64, build="b1"), "x.a1")
    campaign.write(campaign.cell("tp1-auto", "code", 64, build="b2", status="crashed"))
    merged = read()
    (current,) = merged.current
    assert current.cell.status == "crashed"
    (old,) = [row for row in merged.rows if not row.current]
    assert "another identity" in old.note


def test_environments_are_kept_apart_and_their_difference_named(campaign, read):
    campaign.write(campaign.cell("tp1-auto", "code", 64))
    campaign.write(campaign.cell("tp1-ngram", "code", 64))
    campaign.comparability = {**COMPARABILITY, "driver_version": "590.10", "power_limit_w": [450]}
    campaign.write(campaign.cell("tp1-auto", "code", 128))
    merged = read()
    assert [(environment.name, environment.cells_ok) for environment in merged.environments] == [
        ("A", 2),
        ("B", 1),
    ]
    assert [(row.field, row.values) for row in differences(merged.environments)] == [
        ("driver_version", {"A": "580.95.05", "B": "590.10"}),
        ("power_limit_w", {"A": "600", "B": "450"}),
    ]
    newest, older = sections(merged)
    assert (newest.title, older.title) == (
        "lab-small on ct200, environment B",
        "lab-small on ct200, environment A",
    )
    elsewhere = {slot.planned.name: slot.hole for slot in newest.coverages[0].holes}
    assert elsewhere["tp1-auto.code.64.r1"] == "other environment (A)"


def test_a_failure_alone_makes_no_environment(campaign, read):
    campaign.write(campaign.cell("tp1-auto", "code", 64))
    campaign.comparability = {"driver_version": None}
    campaign.write(campaign.cell("tp1-auto", "code", 128, status="crashed"))
    merged = read()
    assert [environment.name for environment in merged.environments] == ["A"]
    (section,) = sections(merged)
    assert {slot.planned.name: slot.status for slot in section.coverages[0].slots}[
        "tp1-auto.code.128.r1"
    ] == "crashed"


@pytest.mark.parametrize(
    ("fields", "flat"),
    [
        ({"a": {"b": 1, "c": None}}, {"a.b": "1", "a.c": "not known"}),
        ({"gpus": ["x"] * 8}, {"gpus": "8 x x"}),
        ({"links": [16, 8], "none": {}}, {"links": "16, 8", "none": "{}"}),
    ],
)
def test_nested_fields_are_named_by_their_path(fields, flat):
    assert flatten(fields) == flat


def test_corrupt_files_are_copied_aside_with_reason_and_origin(campaign, layout, read):
    campaign.run_all()
    bad = campaign.folder / "cells" / "tp1-auto.code.64.r1.json"
    bad.write_bytes(bad.read_bytes()[:100])
    before = bad.read_bytes()
    (kept,) = write_quarantine(layout, read())
    assert bad.read_bytes() == before
    assert kept.read_bytes() == before
    assert kept.is_relative_to(layout.quarantine)
    note = json.loads(kept.with_name(f"{kept.name}.reason.json").read_text())
    assert note["origin"] == "raw/ct200/lab-small/cells/tp1-auto.code.64.r1.json"
    assert note["reason"] == "cut off: the file ends at byte 100 inside a value"
    # Another broken version does not push out the first.
    bad.write_bytes(b"")
    (second,) = write_quarantine(layout, read())
    assert (kept.read_bytes(), second.read_bytes()) == (before, b"")


def test_a_file_that_was_changed_after_it_was_written_is_corrupt(campaign, read):
    campaign.run_all()
    path = campaign.folder / "cells" / "tp1-draft.code.64.r1.json"
    forged = campaign.cell("tp1-draft", "code", 64, factor=3.0)
    path.write_text(json.dumps(forged))
    (refused,) = read().refused
    assert (refused.path, refused.verdict) == (path, "corrupt")
    assert "changed after it was written" in refused.reason


def test_a_cell_that_has_its_file_before_its_line_is_read(campaign, read):
    campaign.write(campaign.cell("tp1-auto", "code", 64, status="crashed"))
    campaign.event("cell_started", cell="tp1-auto.code.64.r1", content_hash="0" * 64)
    path = campaign.folder / "cells" / "tp1-auto.code.64.r1.json"
    path.write_text(json.dumps(campaign.cell("tp1-auto", "code", 64, attempt=2)))
    assert [(row.cell.attempt, row.judged.verdict) for row in read().rows] == [(2, "whole")]


def test_every_file_is_listed_with_its_verdict(campaign, layout, read):
    campaign.run_all()
    (campaign.folder / "cells" / "notes.json").write_text('{"hello": "world"}')
    (campaign.folder / "cells" / "tp1-auto.code.64.r1.json").write_text("")
    merged = read()
    cells, files, _environments = write_merged(layout, merged)
    listed = rows_of(files)
    assert len(listed) == 31
    refused = {row["file"].rsplit("/")[-1]: row["verdict"] for row in listed if row["verdict"] != "whole"}
    assert refused == {"notes.json": "foreign", "tp1-auto.code.64.r1.json": "corrupt"}
    assert len(rows_of(cells)) == 29


def test_a_row_has_its_figures_or_its_reason(campaign, layout, read):
    campaign.write(campaign.cell("tp1-auto", "code", 64))
    campaign.write(campaign.cell("tp1-draft", "code", 64, status="crashed"))
    good, bad = rows_of(write_merged(layout, read())[0])
    assert (good["output_tps"], good["reason_code"], good["baseline"]) == ("26.3", "", "yes")
    assert (bad["output_tps"], bad["reason_code"]) == ("", "server_died")
    assert bad["file"] == "raw/ct200/lab-small/cells/tp1-draft.code.64.r1.json"


def test_requests_become_rows_and_damaged_ones_are_named(campaign, layout, read):
    campaign.with_requests = True
    campaign.write(campaign.cell("tp1-auto", "code", 64, requests=3))
    campaign.write(campaign.cell("tp1-auto", "code", 128))
    (campaign.folder / "cells" / "tp1-auto.code.128.r1.requests.jsonl.zst").write_bytes(b"gone")
    path, count, problems = write_requests(layout, read())
    rows = rows_of(path)
    assert (count, len(rows), problems) == (3, 3, [])
    assert [(row["cell"], row["index"], row["ok"], row["first_ms"]) for row in rows][2] == (
        "tp1-auto.code.64.r1",
        "2",
        "yes",
        "60.0",
    )
    request = schema("request")
    request.validate({"index": 0, "conversation": 0, "turn": 0, "ok": False, "why": "refused"})


def test_a_set_aside_attempt_that_speaks_for_its_environment_has_its_requests(campaign, layout, read):
    campaign.with_requests = True
    cells, old = campaign.folder / "cells", campaign.folder / "superseded"
    campaign.write(campaign.cell("tp1-auto", "code", 64))
    old.mkdir()
    for path in cells.iterdir():
        path.rename(old / path.name.replace(".r1.", ".r1.1a2b3c4d.a1."))
    campaign.comparability = {**COMPARABILITY, "driver_version": "590.10"}
    campaign.write(campaign.cell("tp1-auto", "code", 64))
    merged = read()
    assert [(row.environment, row.current, row.judged.verdict) for row in merged.rows] == [
        ("B", True, "whole"),
        ("A", True, "whole"),
    ]
    assert write_requests(layout, merged)[1:] == (4, [])


def test_merging_again_writes_the_same_bytes_and_touches_nothing(campaign, layout, read):
    campaign.run_all()
    paths = write_merged(layout, read())
    before = [(path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in paths]
    write_merged(layout, read())
    assert [(path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in paths] == before


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=mutated_cells(), tail=st.sampled_from(["", "x", "\0"]))
def test_a_mutated_cell_never_becomes_a_false_number(tmp_path_factory, content, tail):
    """Whatever happens to a file: the merge goes on, and only what schema and laws allow is a figure."""
    layout = Layout(tmp_path_factory.mktemp("mutated"))
    campaign = CampaignBuilder(layout.raw / "ct200" / "lab-small").start()
    campaign.write(campaign.cell("tp1-auto", "concurrency", 4))
    path = campaign.folder / "cells" / "tp1-draft.concurrency.4.r1.json"
    path.write_text(json.dumps(content) + tail)
    merged = merge(scan(layout))
    write_merged(layout, merged)
    write_quarantine(layout, merged)
    frame = points_frame(sections(merged)[0])
    figures = frame[(frame["configuration"] == "tp1-draft") & (frame["n"] > 0)]
    if len(figures):
        schema("cell").validate(content)
        assert (content["status"], tail) == ("ok", "")
