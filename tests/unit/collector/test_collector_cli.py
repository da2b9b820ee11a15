"""The command line: what it says, what it returns, how fast it starts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.cli import main

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def collector(layout, capsys):
    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--results", str(layout.root)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_from_raw_files_to_the_report(campaign, collector, layout):
    campaign.run_all(tp1_draft__code__64={"status": "crashed"})
    (campaign.folder / "cells" / "tp1-auto.code.64.r1.json").write_bytes(b"{")
    code, out, _err = collector("merge")
    assert code == 0
    assert "raw/ct200/lab-small/cells/tp1-auto.code.64.r1.json: corrupt: cut off" in out
    assert (
        "30 cell files: 28 ok cells, 1 other with a reason, 0 superseded, 1 refused (1 in quarantine)" in out
    )
    assert collector("tables", "--quiet") == (0, f"14 files in {layout.tables}\n", "")
    code, out, _err = collector("tables")
    assert "Fastest by workload" in out
    assert collector("report") == (0, f"report: {layout.report}\n", "")
    code, out, _err = collector("status", "--format", "json")
    assert json.loads(out)[0]["counts"] == {"corrupt": 1, "crashed": 1, "ok": 28}


@pytest.mark.parametrize("command", ["merge", "tables", "report", "status"])
def test_without_results_it_says_what_to_do(collector, layout, command):
    code, out, err = collector(command)
    assert (code, out) == (1, "")
    assert err == f"collector: {layout.raw}: no results there; run `collector pull` first\n"


def test_a_results_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "results").write_text("a file")
    assert main(["merge", "--results", str(tmp_path / "results")]) == 1
    assert "cannot write there" in capsys.readouterr().err


def test_a_second_writer_is_refused(campaign, collector, layout):
    campaign.run_all()
    with layout.locked():
        code, _out, err = collector("merge")
    assert code == 1
    assert "another collector is writing there" in err


def test_a_conflict_makes_a_pull_incomplete(campaign, collector, tmp_path):
    source = tmp_path / "backup" / "ct200"
    campaign.write(campaign.cell("tp1-auto", "code", 64))
    source.mkdir(parents=True)
    subprocess.run(["cp", "-a", str(campaign.folder), str(source)], check=True)
    assert collector("pull", "--from", str(source.parent))[0] == 0
    (source / "lab-small" / "cells" / "tp1-auto.code.64.r1.json").write_text("{}")
    code, out, _err = collector("pull", "--from", str(source.parent))
    assert code == 3
    assert "conflict: cells/tp1-auto.code.64.r1.json" in out
    assert out.endswith("incomplete: ct200; complete: 0 of 1 node\n")


@pytest.mark.parametrize("words", [["--help"], ["pull", "--help"]])
def test_help_is_there_at_once(words):
    best = 9.0
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "collector", *words],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        )
        best = min(best, time.perf_counter() - started)
    assert "usage: collector" in done.stdout
    assert best < 0.3
