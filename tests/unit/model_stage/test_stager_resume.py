"""Killed, stopped, cut off: the next run goes on from what is verified, and the bytes are right."""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from model_stager import landing, lock, origins
from model_stager.errors import BusyError, StoppedError
from model_stager.origins import LocalFile
from model_stager.parts import PartJournal
from model_stager.staging import Options, prepare_state, stage

from .conftest import ROLE, Cache, model_files, needed, published, run_stage, stager
from .copy_kit import MB, Given, Kit, Network, write_weights


@pytest.fixture
def small_parts(monkeypatch):
    """A mark in the journal each MB, and extents of one MB."""
    for name in ("PART", "MIN_EXTENT", "MAX_EXTENT"):
        monkeypatch.setattr(landing, name, MB)


@pytest.fixture
def kit(tmp_path):
    entry = write_weights(tmp_path / "weights", 8 * MB + 123)
    return Kit(tmp_path, entry)


def stopped_at(kit, position):
    """A run that gets a signal when it has so many bytes."""

    def on_read(at, view):
        if at == position:
            kit.stop.set()

    with pytest.raises(StoppedError):
        kit.run(Given("first", Network(kit.folder / "weights", on_read)), threads=1)
    kit.stop.clear()


def whole_source(kit):
    return Given("whole", LocalFile(kit.folder / "weights"))


def test_a_stopped_file_goes_on_from_its_last_mark(small_parts, kit):
    stopped_at(kit, 5 * MB)

    kit.run(whole_source(kit))

    assert kit.target.read_bytes() == (kit.folder / "weights").read_bytes()
    assert kit.tally.resumed_bytes == 6 * MB
    assert kit.bytes_of("whole") == kit.entry.size_bytes - 6 * MB


def test_a_part_that_has_changed_since_is_not_trusted(small_parts, kit):
    stopped_at(kit, 5 * MB)
    with kit.target.open("r+b") as stream:
        stream.seek(3 * MB + 7)
        stream.write(b"x")

    kit.run(whole_source(kit))

    assert kit.tally.resumed_bytes == 3 * MB, "the three megabytes before the changed one"
    assert kit.target.read_bytes() == (kit.folder / "weights").read_bytes()


def test_a_torn_last_line_of_the_journal_costs_one_part_only(small_parts, kit):
    stopped_at(kit, 5 * MB)
    journal = kit.folder / "journal.jsonl"
    os.truncate(journal, journal.stat().st_size - 20)

    kit.run(whole_source(kit))

    assert kit.tally.resumed_bytes >= 4 * MB
    assert kit.target.read_bytes() == (kit.folder / "weights").read_bytes()


def test_a_journal_of_other_contents_is_not_used(small_parts, kit):
    stopped_at(kit, 5 * MB)

    journal = PartJournal(kit.folder / "journal.jsonl", "another digest")
    journal.close()

    assert journal.known == {}


def test_what_was_verified_from_a_wrong_source_is_not_blamed_on_the_next(small_parts, kit):
    """The first run's bytes were as that source had them; the sum at the end tells, and all is read anew."""
    right = (kit.folder / "weights").read_bytes()
    (kit.folder / "weights").write_bytes(b"\1" * len(right))
    stopped_at(kit, 5 * MB)
    (kit.folder / "weights").write_bytes(right)

    kit.run(whole_source(kit))

    assert str(kit.reasons) == ""
    assert kit.target.read_bytes() == right
    assert kit.tally.resumed_bytes == 0


def start_stager(cache, root):
    command = [sys.executable, "-m", "model_stager", "stage", "--name", "tiny", "--repo", "lab/tiny"]
    command += ["--root", root, "--source", f"hf_cache={cache.path}"]
    environment = {**os.environ, "PYTHONPATH": str(ROLE / "files")}
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def kill_at_random(times, tmp_path, root):
    """Kill the stager so often at random moments of its work, then let it finish."""
    files = model_files(shards=4, size=12 * MB)
    cache = Cache(tmp_path / "large").add(files)
    dice = random.Random(7)  # noqa: S311 - no secret
    for _ in range(times):
        running = start_stager(cache, root)
        time.sleep(dice.uniform(0.05, 0.35))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        name = root / "tiny"
        assert not name.exists() or len(list(name.iterdir())) == len(needed(files)), "half a model is visible"
    out, err = start_stager(cache, root).communicate()
    assert err == ""
    assert out.startswith("tiny: ")
    found = {path.name: path.read_bytes() for path in (root / "tiny").iterdir()}
    assert found == needed(files)


def test_the_bytes_are_right_after_five_kills(tmp_path, root):
    kill_at_random(5, tmp_path, root)


@pytest.mark.long
def test_the_bytes_are_right_after_fifty_kills(tmp_path, root):
    kill_at_random(50, tmp_path, root)


def test_a_stopped_stager_leaves_whole_files_to_the_next_one(want, files, monkeypatch):
    stop, reads, readinto = threading.Event(), itertools.count(1), origins.LocalReader.readinto

    def counted(reader, view):
        if next(reads) == 3:  # a shard is done, the second is in work
            stop.set()
        return readinto(reader, view)

    with monkeypatch.context() as patch:
        patch.setattr(origins.LocalReader, "readinto", counted)
        with pytest.raises(StoppedError, match="tiny: stopped; verified parts stay for the next run"):
            stage(want(), Options(threads=1), stop)

    outcome = run_stage(want())

    assert outcome.resumed_bytes > len(files["model-00003-of-00003.safetensors"])
    assert published(want()) == needed(files)


def test_a_terminated_stager_says_so(tmp_path, root):
    cache = Cache(tmp_path / "large").add(model_files(shards=5, size=16 * MB))
    for _ in range(10):  # it may be faster than we are
        running = start_stager(cache, root)
        while not list(root.glob("*.partial-*")) and running.poll() is None:
            time.sleep(0.002)
        running.terminate()
        _, err = running.communicate()
        if running.returncode:
            break
        shutil.rmtree(root / "tiny")

    assert running.returncode == 143
    assert err == "model_stager: tiny: stopped; verified parts stay for the next run\n"


def test_of_two_stagers_one_works_and_the_other_says_so(want):
    prepare_state(want())
    with lock.held(want().state / "lock", "tiny", 0):
        with pytest.raises(BusyError, match=rf"another stager \(pid {os.getpid()}\) is at work"):
            run_stage(want(), wait_s=0)
        assert lock.is_held(want().state / "lock")

    assert run_stage(want()).action == "stage"


def test_two_stagers_at_once_both_end_well(want, cache, files):
    running = [start_stager(cache, want().root) for _ in range(2)]
    ended = [(*process.communicate(), process.returncode) for process in running]

    assert [code for _, _, code in ended] == [0, 0]
    assert published(want()) == needed(files)


def test_the_lock_dies_with_its_owner(want):
    prepare_state(want())
    path = want().state / "lock"
    code = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
    code += "print(1, flush=True); time.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
    owner.stdout.readline()
    held = lock.is_held(path)
    owner.kill()
    owner.communicate()

    assert held
    assert not lock.is_held(path)
    assert run_stage(want(), wait_s=0).action == "stage"


def test_a_state_folder_of_another_user_is_refused(want):
    want().root.joinpath(".model-stage").mkdir()
    os.chown(want().root / ".model-stage", 65534, 65534)

    done = stager(
        "stage",
        "--name",
        "tiny",
        "--root",
        want().root,
        "--repo",
        "lab/tiny",
        "--source",
        f"hf_cache={want().sources[0].path}",
    )

    assert done.returncode == 1
    assert "belongs to uid 65534: remove it" in done.stderr
