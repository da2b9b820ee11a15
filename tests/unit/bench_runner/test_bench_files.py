"""Files that are whole or not there, and a journal that survives what a power cut does to it."""

import json
import os
import resource
import signal
import threading

import pytest
from bench_runner.errors import BusyError, FolderError, JournalError
from bench_runner.files import only_runner, remove_leftovers, require_usable, write_whole
from bench_runner.history import History
from bench_runner.journal import Journal, read_events

HASH = "0" * 64


def opened(path, run="run-1"):
    return Journal(path, boot_id="boot", run=run)


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "status.json"
    write_whole(path, b"a" * 100_000)
    seen = set()
    stop = threading.Event()

    def read():
        while not stop.is_set():
            data = path.read_bytes()
            seen.add((len(data), data[:1], data[-1:]))

    reader = threading.Thread(target=read)
    reader.start()
    for letter in (b"b", b"c") * 30:
        write_whole(path, letter * 100_000, durable=False)
    stop.set()
    reader.join()
    assert seen <= {(100_000, letter, letter) for letter in (b"a", b"b", b"c")}
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_killed_writers_leftover_is_removed(tmp_path):
    (tmp_path / ".x.json.tmp-99").write_bytes(b"half")
    write_whole(tmp_path / "x.json", b"whole")
    assert remove_leftovers(tmp_path) == [".x.json.tmp-99"]
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_folder_that_is_none_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        FolderError, match=r"results folder .*/file/bench is not writable for uid \d+: Not a dir"
    ):
        require_usable(tmp_path / "file" / "bench")


def test_a_full_disk_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(FolderError, match="MiB free, a campaign needs at least"):
        require_usable(tmp_path, min_free_bytes=2**60)
    assert list(tmp_path.iterdir()) == []


def test_a_second_runner_is_refused_and_told_who_is_there(tmp_path):
    lock = tmp_path / ".lock"
    with (
        only_runner(lock),
        pytest.raises(BusyError, match=f"another runner \\(pid {os.getpid()}\\) holds"),
        only_runner(lock),
    ):
        pass
    with only_runner(lock):
        pass


def test_events_are_numbered_through_all_runs(tmp_path):
    path = tmp_path / "journal.jsonl"
    for run in ("run-1", "run-2"):
        journal = opened(path, run)
        journal.append("run_started", detail={"cells": 1})
        journal.close()
    assert [(event.seq, event.run) for event in read_events(path)] == [(1, "run-1"), (2, "run-2")]


@pytest.mark.parametrize(
    ("tail", "lines"),
    [
        (b'{"schema_version":1,"seq":3,"at"', 1),
        (b"\0" * 300, 1),
        (b'{"schema_version":1,"seq":3}\n', 1),
        (b"\xff\xfe\n", 1),
        (b'{"schema_version":1,"seq":3,"at":"x","boot_id":"b","run":"r","event":"run_ended"}', 1),
        (b"\0\0\0\n{", 2),
    ],
    ids=["cut", "zeros", "fields missing", "no text", "no line end", "two bad lines"],
)
def test_a_damaged_end_is_put_aside_and_said(tmp_path, tail, lines):
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    journal.append("run_started")
    journal.append("run_ended")
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert [event.seq for event in read_events(path)] == [1, 2]

    journal = opened(path, "run-2")
    journal.append("run_started")
    journal.close()
    assert path.read_bytes().startswith(whole)
    events = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [event["event"] for event in events] == [
        "run_started",
        "run_ended",
        "journal_repaired",
        "run_started",
    ]
    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    repaired = events[2]["detail"]
    assert repaired["lines"] == lines
    assert (tmp_path / repaired["kept_as"]).read_bytes().strip(b"\n") == tail.strip(b"\n")


def test_a_damaged_line_in_the_middle_costs_only_itself(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    for status in ("ok", "failed"):
        journal.append("cell_started", cell=f"a.code.1.{status}", content_hash=HASH)
        journal.append("cell_ended", cell=f"a.code.1.{status}", content_hash=HASH, status=status, reasons=[])
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:10] + b"\0" * 9 + lines[2][19:]
    path.write_bytes(b"".join(lines))
    journal = opened(path)
    history = History(journal.events)
    journal.close()
    assert history.cell("a.code.1.ok", HASH).status == "ok"
    assert history.cell("a.code.1.failed", HASH).status == "failed"


def test_a_newer_journal_is_refused_not_misread(tmp_path):
    path = tmp_path / "journal.jsonl"
    event = {"schema_version": 2, "seq": 1, "at": "x", "boot_id": "b", "run": "r", "event": "quantum_started"}
    path.write_text(json.dumps(event) + "\n")
    with pytest.raises(JournalError, match="line 1 has schema_version 2, newer than 1; update the runner"):
        opened(path)


def test_an_event_that_cannot_be_written_leaves_no_half_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    journal.append("run_started")
    whole = path.read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, before[1]))
        with pytest.raises(JournalError):
            journal.append("run_ended", detail={"state": "finished"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == whole
    journal.append("run_ended")
    journal.close()
    assert [event.seq for event in read_events(path)] == [1, 2]
