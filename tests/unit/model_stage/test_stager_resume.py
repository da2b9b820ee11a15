"""Killed, stopped, cut off: the next run goes on from what is verified, and the bytes are right."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from model_stager import landing, lock, origins, transfer
from model_stager.errors import BusyError, StoppedError
from model_stager.origins import LocalFile
from model_stager.parts import PartJournal
from model_stager.staging import Options, prepare_state, stage

from .conftest import ROLE, Cache, model_files, needed, published, run_stage, stager
from .copy_kit import MB, Given, Kit, Network, write_weights


@pytest.fixture
def small_parts(monkeypatch):
    """A mark in the journal each MB, and extents of one MB."""
    monkeypatch.setattr(landing, "PART", MB)
    for name in ("LOCAL_EXTENT", "LEAST_EXTENT", "LARGEST_EXTENT"):
        monkeypatch.setattr(transfer, name, MB)


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
    assert 5 * MB <= kit.tally.resumed_bytes <= 6 * MB
    assert kit.bytes_of("whole") == kit.entry.size_bytes - kit.tally.resumed_bytes


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


def start_stager(cache, root, threads=3):
    command = [sys.executable, "-m", "model_stager", "stage", "--name", "tiny", "--repo", "lab/tiny"]
    command += ["--root", root, "--source", f"hf_cache={cache.path}", "--threads", str(threads)]
    environment = {**os.environ, "PYTHONPATH": str(ROLE / "files")}
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def kill_at_random(times, tmp_path, root, files):
    """Kill the stager so often at random moments of its work, then let it finish."""
    cache = Cache(tmp_path / "large").add(files)
    dice = random.Random(7)  # noqa: S311 - no secret
    for _ in range(times):
        running = start_stager(cache, root)
        time.sleep(dice.uniform(0.05, 0.45))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        name = root / "tiny"
        assert not name.exists() or len(list(name.iterdir())) == len(needed(files)), "half a model is visible"
    out, err = start_stager(cache, root).communicate()
    assert err == ""
    assert out.startswith("tiny: ")
    found = {path.name: path.read_bytes() for path in (root / "tiny").iterdir()}
    assert found == needed(files)


# Many files, a worker on each; and one file, with all workers in it.
SHAPES = {"four files": (4, 12 * MB), "one file": (1, 150 * MB)}


@pytest.mark.parametrize(("shards", "size"), SHAPES.values(), ids=SHAPES)
def test_the_bytes_are_right_after_five_kills(tmp_path, root, shards, size):
    kill_at_random(5, tmp_path, root, model_files(shards=shards, size=size))


@pytest.mark.long
@pytest.mark.parametrize(("shards", "size"), SHAPES.values(), ids=SHAPES)
def test_the_bytes_are_right_after_fifty_kills(tmp_path, root, shards, size):
    kill_at_random(50, tmp_path, root, model_files(shards=shards, size=size))


def test_what_was_verified_before_a_kill_is_not_copied_again(tmp_path, root):
    """One file in which several workers are ahead of the hash when the kill comes."""
    cache = Cache(tmp_path / "large").add(model_files(shards=1, size=150 * MB))
    journal = root / ".model-stage/tiny/journal.jsonl"
    for _ in range(10):  # it may be faster than we are
        running = start_stager(cache, root)
        while running.poll() is None and b'"end"' not in (journal.read_bytes() if journal.exists() else b""):
            time.sleep(0.001)
        running.kill()
        running.communicate()
        if not (root / "tiny").exists():
            break
        shutil.rmtree(root / "tiny")

    start_stager(cache, root).communicate()
    result = json.loads((root / ".model-stage/tiny/result.json").read_text())

    assert result["resumed_bytes"] >= 64 * MB
    assert result["copied_bytes"] + result["resumed_bytes"] == result["total_bytes"]


@pytest.mark.parametrize("sources", [1, 2], ids=["one file", "several files"])
def test_memory_stays_small_whatever_the_models_size(tmp_path, root, sources):
    """A sparse model; the kernel's own count of the largest that the process ever was."""
    size = 300 * MB
    for number in range(sources):
        header = safetensors_header(size // sources)
        path = tmp_path / "model" / f"model-{number}.safetensors"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as stream:
            stream.write(header)
            stream.truncate(len(header) + size // sources)
            stream.seek(size // sources // 2)  # looks there find no zeros
            stream.write(b"x")
    (tmp_path / "model/config.json").write_text("{}")
    stager("manifest", "create", "--from", tmp_path / "model")
    script = (
        "import resource, sys\n"
        "from model_stager.cli import main\n"
        "code = main(sys.argv[1:])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
        "sys.exit(code)"
    )

    wanted = ["stage", "--name", "tiny", "--root", root, "--source", f"directory={tmp_path}/model"]
    wanted += ["--threads", "4"]
    # By a shell of its own: the count starts with the size of the process that forks.
    done = subprocess.run(
        [
            "sh",
            "-c",
            '"$@"; exit $?',
            "sh",
            sys.executable,
            "-c",
            script,
            *map(str, wanted),
            "--threads",
            "4",
        ],
        env={**os.environ, "PYTHONPATH": str(ROLE / "files")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout.splitlines()[-1]) / 1024 < 64


def safetensors_header(length):
    header = json.dumps({"w": {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}}).encode()
    return len(header).to_bytes(8, "little") + header


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


def test_a_full_tmpfs_keeps_what_is_verified(tmp_path):
    """The real thing: full while several workers write; made larger, it goes on from the last mark."""
    cache = Cache(tmp_path / "large").add(model_files(shards=1, size=150 * MB))
    small = tmp_path / "small"
    small.mkdir()
    late = tmp_path / "late.py"  # as if another program had taken the room after the check
    late.write_text(
        "import sys, model_stager.staging as staging\n"
        "staging.require_possible = lambda *a, **k: dict()\n"
        "from model_stager.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    wanted = f"stage --name tiny --repo lab/tiny --source hf_cache={cache.path} --root {small} --threads 3"
    script = (
        f"mount -t tmpfs -o size=120m tmpfs {small}; {sys.executable} {late} {wanted}; echo code $?; "
        f"cat {small}/.model-stage/tiny/result.json; mount -o remount,size=400m {small}; "
        f"{sys.executable} -m model_stager {wanted} && cat {small}/.model-stage/tiny/result.json; "
        f"cmp {small}/tiny/*.safetensors {cache.blob('model-00001-of-00001.safetensors')} && echo same"
    )

    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROLE / "files")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "code 4" in done.stdout
    assert "No space left on device after" in done.stderr
    assert '"code": "no_room"' in done.stdout, "whoever follows must learn of it"
    assert "were there from an earlier run" in done.stdout
    assert done.stdout.endswith("same\n")
