"""A model that can't be in memory is served from where it lies: proven once by its sums, then quickly."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from .conftest import COMMIT, REPO, ROLE, Cache, model_files, stager, tree
from .small_tmpfs import mounted

SHARD = "model-00001-of-00003.safetensors"


@pytest.fixture
def shm(tmp_path):
    """Room for half of the model."""
    with mounted(tmp_path / "small", 1) as folder:
        yield folder


@pytest.fixture
def large(tmp_path):
    return Cache(tmp_path / "large").add(model_files(size=700_000))


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def wanted(shm, large, state):
    source = f"hf_cache={large.path}"
    return ["--name", "tiny", "--repo", REPO, "--root", shm, "--source", source, "--state-dir", state]


def snapshot(cache):
    return cache.repo / "snapshots" / COMMIT


def result(shm):
    return json.loads((shm / ".model-stage/tiny/result.json").read_text())


def test_check_predicts_stage_proves_and_the_next_run_changes_nothing(wanted, shm, large, state):
    before = tree(shm), tree(state)
    predicted = json.loads(stager("check", *wanted).stdout)
    untouched = (tree(shm), tree(state)) == before
    first = stager("stage", *wanted, "--run", "r1")
    then, again = result(shm), json.loads(stager("check", *wanted).stdout)
    second = stager("stage", *wanted, "--run", "r2")

    assert untouched
    assert predicted["place"] == "in_place"
    assert (predicted["action"], predicted["changes"], predicted["memory_bytes"]) == ("rehash", True, 0)
    assert predicted["path"] == then["path"] == str(snapshot(large))
    assert predicted["digest"] == then["digest"]
    assert predicted["summary"].startswith(
        f"tiny: 2.1 MB does not fit into {shm} (1.0 MB): would be served from the HF cache on disk "
        f"({snapshot(large)}), after hashing 5 files there (it was never verified there)"
    )
    assert first.stdout.startswith(
        f"tiny: 2.1 MB does not fit into {shm} (1.0 MB): served from the HF cache on disk "
        f"({snapshot(large)}; it was never verified there; sha256 of 5 files right, "
    )
    assert (again["action"], again["changes"]) == ("none", False)
    assert "proven intact, 5 files, " in second.stdout
    assert not (shm / "tiny").exists()


def test_progress_is_that_of_a_copy(wanted, shm):
    stager("stage", *wanted, "--run", "r1")

    progress = json.loads((shm / ".model-stage/tiny/progress.json").read_text())

    assert (progress["state"], progress["run"]) == ("checking", "r1")
    assert progress["bytes"] == progress["total_bytes"] > 2_000_000


def rewrite(path):
    """Another byte at the end, of the same length."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_file_that_changed_is_found_at_once_and_named_when_it_is_wrong(wanted, large, state):
    stager("stage", *wanted)
    rewrite(large.blob(SHARD))

    looked, staged = stager("check", *wanted), stager("stage", *wanted)

    assert json.loads(looked.stdout)["why"] == [f"{SHARD} changed since it was verified"]
    assert staged.returncode == 3
    assert f"{SHARD} has sha256 " in staged.stderr
    assert "Download it again" in staged.stderr
    assert json.loads(stager("check", *wanted).stdout)["action"] == "rehash", "it is not taken for right now"


def test_the_proof_survives_a_reboot_and_a_new_device_number(wanted, state):
    stager("stage", *wanted)
    record = json.loads((state / "tiny.proof.json").read_text())

    assert "boot_id" not in record
    assert "device" not in record


def test_a_full_check_hashes_and_changes_nothing(wanted, shm):
    stager("stage", *wanted)

    stager("stage", *wanted, "--deep")

    assert (result(shm)["action"], result(shm)["changed"]) == ("rehash", False)


def test_what_is_not_to_be_in_memory_is_not(wanted, root, cache):
    fits = [*wanted, "--root", root, "--source", f"hf_cache={cache.path}", "--not-in-memory"]

    done = stager("stage", *fits)

    assert "are not to be in memory (in_memory: false): served from the HF cache on disk" in done.stdout
    assert not (root / "tiny").exists()


def test_a_directory_serves_as_well(wanted, shm, state, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, content in model_files(size=700_000).items():
        (copy / name).write_bytes(content)
    stager("manifest", "create", "--from", copy)

    done = stager(
        "stage", "--name", "tiny", "--root", shm, "--state-dir", state, "--source", f"directory={copy}"
    )

    assert f"served from the directory {copy} on disk" in done.stdout


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda cache: cache.blob(SHARD).unlink(), "dangling"),
        (
            lambda cache: (snapshot(cache) / "extra.safetensors").write_bytes(b"1"),
            "also has extra.safetensors, which an engine would load",
        ),
        (lambda cache: (snapshot(cache) / SHARD).unlink(), "not under its name"),
    ],
    ids=["dangling", "more-weights", "no-link"],
)
def test_what_is_not_whole_in_one_folder_is_refused_with_the_variable(wanted, large, damage, said):
    damage(large)

    done = stager("stage", *wanted)

    assert done.returncode == 4
    assert "does not fit into" in done.stderr
    assert said in done.stderr
    assert "; or set model_stage_disk_root to a folder on a disk" in done.stderr
    assert f"model_stage_grow_allowed lets {wanted[5]} grow" in done.stderr


def test_else_it_is_staged_on_the_disk_that_is_named(wanted, large, tmp_path):
    (snapshot(large) / "extra.safetensors").write_bytes(b"1")
    disk = tmp_path / "disk"
    disk.mkdir()

    predicted = json.loads(stager("check", *wanted, "--disk-root", disk).stdout)
    done = stager("stage", *wanted, "--disk-root", disk)
    again = json.loads(stager("check", *wanted, "--disk-root", disk).stdout)

    assert (predicted["place"], predicted["path"], predicted["action"]) == ("disk", f"{disk}/tiny", "stage")
    assert "does not fit into" in done.stdout
    assert (disk / "tiny" / SHARD).is_file()
    assert again["action"] == "none"


def test_a_copy_on_a_disk_is_proven_after_a_reboot_too(wanted, large, tmp_path):
    (snapshot(large) / "extra.safetensors").write_bytes(b"1")
    disk = tmp_path / "disk"
    disk.mkdir()
    stager("stage", *wanted, "--disk-root", disk)
    record = json.loads((disk / "tiny.proof.json").read_text())

    assert record["boot_id"] is None
    assert record["device"] is None


def test_the_engines_user_must_be_able_to_read_it(wanted, tmp_path):
    tmp_path.chmod(0o700)

    done = stager("stage", *wanted, "--reader", "nobody")

    assert done.returncode == 4
    assert "can't be read by the user nobody" in done.stderr


def test_the_folder_of_the_records_is_made(wanted, state):
    state.rmdir()

    done = stager("stage", *wanted)

    assert done.returncode == 0, done.stderr
    assert (state / "tiny.proof.json").is_file()


def test_a_stop_leaves_no_record(shm, state, tmp_path):
    cache = Cache(tmp_path / "larger").add(model_files(shards=2, size=80_000_000))
    command = [sys.executable, "-m", "model_stager", "stage", "--name", "tiny", "--repo", REPO]
    command += ["--root", str(shm), "--source", f"hf_cache={cache.path}", "--state-dir", str(state)]
    environment = {**os.environ, "PYTHONPATH": str(ROLE / "files")}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while not (shm / ".model-stage/tiny/progress.json").exists():
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]

    assert process.returncode == 143
    assert "stopped before it was verified" in said
    assert not list(state.iterdir())
