"""What may change on a node between two pulls, and what is put aside."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from collector.copies import copy_from
from collector.errors import NoResultsError
from collector.intake import Intake, Listed, file_sha256, known_files, take_in
from tests.unit.collector.result_builder import CampaignBuilder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def node(tmp_path: Path) -> CampaignBuilder:
    """A campaign's folder on its node."""
    return CampaignBuilder(tmp_path / "node" / "lab-small", with_requests=True).start()


@pytest.fixture
def fetch(layout, node):
    """Take in what differs, as a pull does."""

    def run() -> Intake:
        here = known_files(layout.raw / "ct200" / "lab-small")
        listed = {
            path: Listed(
                (node.folder / path).stat().st_size,
                digest,
                None if here.get(path) == digest else node.folder / path,
            )
            for path, digest in known_files(node.folder).items()
        }
        return take_in(layout, "ct200", "lab-small", listed)

    return run


@pytest.fixture
def here(layout) -> Path:
    return layout.raw / "ct200" / "lab-small"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_pull_copies_exactly_and_the_next_one_nothing(node, fetch, here):
    node.run_all()
    first = fetch()
    assert (first.new, first.updated, first.conflicts) == (len(tree(node.folder)), 0, [])
    assert tree(here) == tree(node.folder)
    second = fetch()
    assert (second.new, second.updated, second.unchanged) == (0, 0, first.new)


def test_a_campaign_that_goes_on_brings_only_what_is_new(node, fetch, here):
    node.write(node.cell("tp1-auto", "code", 64))
    node.status("running")
    fetch()
    node.write(node.cell("tp1-auto", "code", 128))
    node.status("running")
    result = fetch()
    assert (result.new, result.updated, result.conflicts) == (2, 2, [])  # cell, requests; journal, status
    assert tree(here) == tree(node.folder)


def test_a_new_attempt_replaces_the_old_one_which_is_kept(node, fetch, here, layout, read):
    node.write(node.cell("tp1-auto", "code", 64, status="crashed"))
    fetch()
    old = (here / "cells/tp1-auto.code.64.r1.json").read_bytes()
    node.write(node.cell("tp1-auto", "code", 64, attempt=2))
    result = fetch()
    assert result.conflicts == []
    assert tree(here) == tree(node.folder)
    assert old in tree(layout.superseded).values()
    rows = {row.cell.attempt: row for row in read().rows}
    assert {attempt: row.current for attempt, row in rows.items()} == {1: False, 2: True}
    assert rows[1].note == "a good attempt is there: tp1-auto.code.64.r1.json, attempt 2"


def test_an_old_attempt_that_the_node_keeps_is_not_kept_twice(node, fetch, layout, read):
    path = node.write(node.cell("tp1-auto", "code", 64, status="crashed"))
    fetch()
    (node.folder / "superseded").mkdir()
    path.rename(node.folder / "superseded" / "tp1-auto.code.64.r1.1a2b3c4d.a1.json")
    node.write(node.cell("tp1-auto", "code", 64, attempt=2))
    assert fetch().conflicts == []
    assert not layout.superseded.exists()
    assert [(row.cell.attempt, row.judged.verdict) for row in read().rows] == [(2, "whole"), (1, "whole")]


def test_a_cell_that_changed_behind_the_journals_back_is_a_conflict(node, fetch, here, layout):
    path = node.write(node.cell("tp1-auto", "code", 64))
    fetch()
    before = tree(here)
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"host": "other"}))
    result = fetch()
    assert len(result.conflicts) == 1
    assert "the journal knows of no new attempt" in result.conflicts[0]
    assert tree(here) == before
    aside = layout.quarantine / "incoming/ct200/lab-small/cells"
    copy = aside / f"tp1-auto.code.64.r1.json.{file_sha256(path)[:12]}"
    assert copy.read_bytes() == path.read_bytes()
    note = json.loads(copy.with_name(f"{copy.name}.reason.json").read_text())
    assert note["origin"] == "ct200:lab-small/cells/tp1-auto.code.64.r1.json"
    assert fetch().conflicts == result.conflicts  # it stays said until someone decides


def test_a_cell_that_was_changed_here_is_put_aside_and_fetched_again(node, fetch, here, layout):
    node.write(node.cell("tp1-auto", "code", 64))
    fetch()
    (here / "cells/tp1-auto.code.64.r1.json").write_text("{}")
    result = fetch()
    assert (result.conflicts, result.updated) == ([], 1)
    assert "was changed here since it came" in result.notes[0]
    assert tree(here) == tree(node.folder)
    assert b"{}" in tree(layout.quarantine).values()
    assert not layout.superseded.exists()


def test_a_replaced_attempt_keeps_its_request_records(node, fetch, read):
    node.write(node.cell("tp1-auto", "code", 64, factor=0.5))
    fetch()
    node.write(node.cell("tp1-auto", "code", 64, attempt=2, requests=3))
    assert fetch().conflicts == []
    assert [(row.cell.attempt, row.judged.verdict) for row in read().rows] == [(2, "whole"), (1, "whole")]


def test_a_cell_between_its_file_and_its_journal_line_is_left_for_the_next_pull(node, fetch, here):
    path = node.write(node.cell("tp1-auto", "code", 64, status="crashed"))
    fetch()
    before = tree(here)
    node.event("cell_started", cell="tp1-auto.code.64.r1", content_hash="0" * 64)
    path.write_text("{}")
    result = fetch()
    assert (result.conflicts, len(result.notes)) == ([], 1)
    assert tree(here)["cells/tp1-auto.code.64.r1.json"] == before["cells/tp1-auto.code.64.r1.json"]


def test_a_journal_that_shrank_is_a_conflict(node, fetch, here):
    node.write(node.cell("tp1-auto", "code", 64))
    fetch()
    before = tree(here)
    journal = node.folder / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    result = fetch()
    assert "has 2 events, here are 3 already" in result.conflicts[0]
    assert tree(here) == before


def test_a_journal_that_tells_another_story_is_a_conflict(node, fetch, here):
    node.write(node.cell("tp1-auto", "code", 64))
    fetch()
    before = tree(here)
    journal = node.folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"status":"ok"', b'"status":"failed"'))
    assert "something else than before from event 3 on" in fetch().conflicts[0]
    assert tree(here) == before


def test_a_torn_line_that_the_runner_repaired_is_no_conflict(node, fetch, here):
    node.write(node.cell("tp1-auto", "code", 64))
    journal = node.folder / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"schema_version":1,"seq":4,"at":"2026-0')
    assert fetch().conflicts == []
    journal.write_bytes(whole)
    node.event("journal_repaired")
    assert fetch().conflicts == []
    assert tree(here) == tree(node.folder)


def test_a_campaign_started_anew_keeps_the_earlier_one_whole(node, fetch, here, layout):
    node.run_all()
    fetch()
    earlier = tree(here)
    shutil.rmtree(node.folder)
    anew = CampaignBuilder(node.folder, day=20, run="run-9").start()
    anew.write(anew.cell("tp1-auto", "code", 64))
    result = fetch()
    assert result.conflicts == []
    assert "started anew on the node" in result.notes[0]
    assert tree(here) == tree(node.folder)
    (kept,) = (layout.earlier / "ct200" / "lab-small").iterdir()
    assert tree(kept) == earlier


def test_damage_on_the_way_is_put_aside_and_fetched_again(node, fetch, here, layout):
    node.write(node.cell("tp1-auto", "code", 64))
    listed = {
        path: Listed((node.folder / path).stat().st_size, digest, node.folder / path)
        for path, digest in known_files(node.folder).items()
    }
    listed["plan.yml"] = Listed(listed["plan.yml"].size_bytes, "0" * 64, listed["plan.yml"].at)
    result = take_in(layout, "ct200", "lab-small", listed)
    assert "its sha256 is not the one that the node gave" in result.conflicts[0]
    assert not (here / "plan.yml").exists()
    assert fetch().conflicts == []
    assert tree(here) == tree(node.folder)


@pytest.mark.parametrize("path", ["../outside.json", "/etc/passwd", "cells/.hidden", "cells//x", "a/../../b"])
def test_no_name_leads_out_of_the_folder(layout, tmp_path, path):
    source = tmp_path / "source"
    source.write_text("x")
    result = take_in(layout, "ct200", "lab-small", {path: Listed(1, file_sha256(source), source)})
    assert "no plain relative path" in result.conflicts[0]
    assert all(found.is_relative_to(layout.quarantine) for found in layout.root.rglob("*") if found.is_file())


@pytest.mark.parametrize("tail", ["", "lab-small"])
def test_a_nodes_own_folder_can_be_taken_from(node, layout, tmp_path, here, tail):
    node.run_all()
    said: list[tuple[str, str]] = []
    copy_from(tmp_path / "node" / tail, layout, on_progress=lambda *line: said.append(line))
    assert tree(here) == tree(node.folder)
    assert said[0][0] == "ct200"


def test_another_results_folder_can_be_taken_from(node, layout, tmp_path, here):
    node.run_all()
    shutil.copytree(node.folder, tmp_path / "backup" / "raw" / "ct200" / "lab-small")
    copy_from(tmp_path / "backup", layout, on_progress=lambda *_: None)
    assert tree(here) == tree(node.folder)


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_a_folder_without_campaigns_is_named(layout, tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoResultsError, match=folder):
        copy_from(tmp_path / folder, layout, on_progress=lambda *_: None)
