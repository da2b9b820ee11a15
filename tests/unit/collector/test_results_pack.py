"""The module that lists and packs results on a node."""

from __future__ import annotations

import importlib.util
import json
import os
import tarfile
import time
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from collector.intake import known_files
from tests.unit.collector.result_builder import CampaignBuilder

LIBRARY = Path(__file__).parents[3] / "playbooks" / "library" / "results_pack.py"


@pytest.fixture(scope="module")
def results_pack():
    spec = importlib.util.spec_from_file_location("results_pack", LIBRARY)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(results_pack, tmp_path, capsys):
    """Run the module as Ansible would, and read its answer."""

    def call(*, check: bool = False, **arguments):
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        given = {"root": str(tmp_path / "bench"), "scratch": str(scratch), **arguments}
        with patch_module_args({**given, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            results_pack.main()
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def node(tmp_path):
    return CampaignBuilder(tmp_path / "bench" / "lab-small", with_requests=True).start()


def members(archive: str) -> list[str]:
    with tarfile.open(archive) as opened:
        return opened.getnames()


def test_everything_is_packed_once_cells_before_their_journal(node, run):
    node.run_all()
    result = run()
    files = known_files(node.folder)
    assert (result["changed"], result["campaigns"]) == (False, ["lab-small"])
    assert result["packed"] == result["files"] == len(files)
    names = members(result["archive"])
    last = ["plan.yml", "journal.jsonl", "status.json", "STATUS.md"]
    assert names[-5:] == [*(f"lab-small/{name}" for name in last), "manifest.json"]
    with tarfile.open(result["archive"]) as archive:
        manifest = json.loads(archive.extractfile("manifest.json").read())
    assert {path: file["sha256"] for path, file in manifest["lab-small"].items()} == files


def test_what_is_known_is_listed_but_not_packed(node, run):
    node.run_all()
    known = known_files(node.folder)
    del known["plan.yml"]
    result = run(known=json.dumps({"lab-small": known}))
    assert members(result["archive"]) == ["lab-small/plan.yml", "manifest.json"]
    assert result["files"] == len(known) + 1


def test_check_mode_predicts_and_writes_nothing(node, run, tmp_path):
    node.run_all()
    predicted = run(check=True)
    assert predicted["archive"] == ""
    assert list((tmp_path / "scratch").iterdir()) == []
    real = run()
    assert {**predicted, "archive": 0, "invocation": 0} == {**real, "archive": 0, "invocation": 0}


def test_a_node_that_never_ran_a_benchmark_has_no_campaigns(run):
    assert run()["campaigns"] == []


def test_half_written_files_links_and_strangers_are_left_out(node, run):
    (node.folder / "cells" / ".a.json.tmp-1").write_text("half")
    (node.folder / "cells" / "b.partial").write_text("half")
    (node.folder / "cells" / "link.json").symlink_to("/etc/passwd")
    (node.folder.parent / ".hidden").mkdir()
    (node.folder.parent / "lost file").write_text("x")
    assert members(run()["archive"]) == ["lab-small/plan.yml", "lab-small/journal.jsonl", "manifest.json"]


def test_the_archive_is_for_its_user_only(node, run):
    assert os.stat(run()["archive"]).st_mode & 0o077 == 0  # noqa: PTH116 - one number is wanted


def test_archives_that_were_never_fetched_go_after_an_hour(node, run, results_pack, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    old, fresh = (scratch / f"{results_pack.PREFIX}{name}.tar" for name in ("old", "fresh"))
    for path in (old, fresh):
        path.write_text("x")
    os.utime(old, (time.time() - 3700,) * 2)
    run()
    assert (old.exists(), fresh.exists()) == (False, True)


def test_a_file_that_grows_is_packed_as_it_was_hashed(results_pack, tmp_path):
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(b"one\n")
    with journal.open("rb") as source:
        beginning = results_pack.Beginning(source, 4)
        with journal.open("ab") as more:
            more.write(b"two\n")
        assert beginning.read() == b"one\n"


def test_a_folder_that_cannot_be_read_fails_with_its_name(run, tmp_path):
    result = run(scratch=str(tmp_path / "nowhere"), root=str(tmp_path))
    assert result["failed"]
    assert "nowhere" in result["msg"]


def test_unreadable_knowledge_is_refused(run):
    assert "known is no JSON text" in run(known="{")["msg"]
