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
from model_stager import copying, lock
from model_stager.errors import BusyError, SourceUnusableError, StoppedError
from model_stager.manifest import FileEntry, hash_file
from model_stager.origins import LocalFile
from model_stager.parts import PartJournal
from model_stager.staging import Options, prepare_state, stage
from model_stager.tally import Tally

from .conftest import ROLE, Cache, model_files, needed, published, run_stage, stager

MB = 1 << 20


@pytest.fixture
def small_parts(monkeypatch):
    """A mark in the journal each MB."""
    monkeypatch.setattr(copying, "PART", MB)


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(random.Random(3).randbytes(8 * MB + 123))  # noqa: S311 - no secret
    size, sha256 = hash_file(path)
    return path, FileEntry("weights", size, sha256)


@pytest.fixture(params=[False, True], ids=["hash beside", "hash behind"])
def land(request, tmp_path, weights):
    """Open the landing of a run, with the journal that runs share."""
    opened = []

    def make(tally=None):
        for landing in opened:  # the run before has ended
            landing.close()
        journal = PartJournal(tmp_path / "journal.jsonl", "digest")
        landing = copying.Landing(
            weights[1], tmp_path / "landed", journal, tally or Tally(0), behind=request.param
        )
        opened[:] = [landing]
        return landing

    yield make
    for landing in opened:
        landing.close()


class Until(threading.Event):
    """Set from the n-th look on: a signal in the middle of a file."""

    def __init__(self, looks):
        super().__init__()
        self._left = itertools.count(looks, -1)

    def is_set(self):
        return next(self._left) <= 0


def test_a_stopped_file_goes_on_from_its_last_mark(small_parts, weights, land, tmp_path):
    path, entry = weights
    with pytest.raises(StoppedError):
        copying.pump(LocalFile(path), land(), Until(5))

    tally = Tally(entry.size_bytes)
    landing = land(tally)
    copying.pump(LocalFile(path), landing, threading.Event())

    assert landing.sha256() == entry.sha256
    assert tally.copied_bytes == entry.size_bytes - 5 * MB
    assert (tmp_path / "landed").read_bytes() == path.read_bytes()


def test_a_part_that_has_changed_since_is_not_trusted(small_parts, weights, land, tmp_path):
    path, entry = weights
    with pytest.raises(StoppedError):
        copying.pump(LocalFile(path), land(), Until(5))
    with (tmp_path / "landed").open("r+b") as stream:
        stream.seek(3 * MB + 7)
        stream.write(b"x")

    landing = land()

    assert landing.offset == 3 * MB, "the three megabytes before the changed one"
    copying.pump(LocalFile(path), landing, threading.Event())
    assert landing.sha256() == entry.sha256


def test_a_torn_last_line_of_the_journal_costs_one_part_only(small_parts, weights, land, tmp_path):
    path, _ = weights
    with pytest.raises(StoppedError):
        copying.pump(LocalFile(path), land(), Until(5))
    journal = tmp_path / "journal.jsonl"
    os.truncate(journal, journal.stat().st_size - 20)

    assert land().offset >= 4 * MB


def test_a_journal_of_other_contents_is_not_used(small_parts, weights, land, tmp_path):
    with pytest.raises(StoppedError):
        copying.pump(LocalFile(weights[0]), land(), Until(5))

    journal = PartJournal(tmp_path / "journal.jsonl", "another digest")

    assert journal.known == {}


class Named:
    """A source by its label only."""

    def __init__(self, label):
        self.label = label


def test_a_source_that_ends_midway_is_continued_by_the_next(weights, land, tmp_path):
    path, entry = weights
    half = tmp_path / "half"
    half.write_bytes(path.read_bytes()[: 3 * MB])
    reasons, tally = [], Tally(0)
    landing = land(tally)

    used = copying.copy_verified(
        landing,
        [(Named("first"), LocalFile(half)), (Named("second"), LocalFile(path))],
        threading.Event(),
        lambda source, reason: reasons.append((source.label, str(reason))),
    )

    assert used.label == "second"
    assert reasons == [("first", f"weights ends at byte {3 * MB}, it should have {entry.size_bytes}")]
    assert tally.copied_bytes == entry.size_bytes


def test_a_wrong_beginning_from_one_source_does_not_condemn_the_next(weights, land, tmp_path):
    path, entry = weights
    half = tmp_path / "half"
    half.write_bytes(b"\1" * 3 * MB)
    reasons = []
    landing = land()

    used = copying.copy_verified(
        landing,
        [(Named("first"), LocalFile(half)), (Named("second"), LocalFile(path))],
        threading.Event(),
        lambda source, _: reasons.append(source.label),
    )

    assert used.label == "second"
    assert reasons == ["first"]
    assert landing.sha256() == entry.sha256


def test_a_source_that_can_not_be_opened_is_a_reason(weights, land):
    with pytest.raises(SourceUnusableError, match="can't be opened: No such file"):
        copying.pump(LocalFile(weights[0].with_name("gone")), land(), threading.Event())


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


def test_a_stopped_stager_leaves_whole_files_to_the_next_one(want, files):
    with pytest.raises(StoppedError, match="tiny: stopped; verified parts stay for the next run"):
        stage(want(), Options(threads=1), Until(9))

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
