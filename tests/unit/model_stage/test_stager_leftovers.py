"""What lies in the root from before: another revision, a kill's leavings, a record that can't be read."""

import json
import shutil

import pytest
from model_stager import lock
from model_stager.checking import check
from model_stager.errors import BusyError, NotIntactError, StagerError
from model_stager.inventory import staged
from model_stager.placing import Wishes
from model_stager.plan import make_plan
from model_stager.staging import Stager
from model_stager.trusted import verify_published

from .conftest import Cache, model_files, needed, published, run_stage, stager
from .small_tmpfs import mounted

NEWER = "b" * 40


@pytest.fixture
def newer(want, cache, files):
    """Published is the older revision; the branch means the newer one, whose files have the same sizes."""
    run_stage(want())
    changed = model_files(seed=2)
    changed["config.json"] = files["config.json"]
    cache.add(changed, commit=NEWER)
    return changed


def test_another_revision_is_known_without_reading_the_old_one(want, newer):
    predicted = check(want(), Wishes())
    outcome = run_stage(want())

    assert predicted["action"] == "stage"
    assert predicted["copy_files"] == outcome.copied_files == 3, "config and index are the same"
    assert predicted["copy_bytes"] == outcome.copied_bytes
    assert published(want()) == needed(newer)


def test_a_touched_file_of_another_revision_is_not_believed(want, newer, files):
    request = want()
    path = request.published / "config.json"
    path.write_bytes(b"x" * len(files["config.json"]))

    run_stage(request)

    assert published(request) == needed(newer)


@pytest.mark.parametrize("left", ["exchanged", "half removed"])
def test_what_a_kill_after_publishing_leaves_is_taken_away(want, newer, left):
    """Between the rename and the record, the older revision lies under the name of the unfinished copy."""
    request = want()
    older = request.root / "older"
    shutil.copytree(request.published, older)
    run_stage(request)
    partial = older.rename(request.root / "tiny.partial-0123456789ab")
    if left == "half removed":
        next(partial.glob("*.safetensors")).unlink()
    request.proof_path.unlink()

    outcome = run_stage(request)

    assert outcome.action == "rehash"
    assert not list(request.root.glob("*.partial-*"))
    assert published(request) == needed(newer)


@pytest.mark.parametrize(
    "record",
    [
        {"schema_version": 1},
        {"schema_version": 2},
        {"schema_version": 1, "manifest_digest": "DIGEST"},
        {"schema_version": 1, "manifest_digest": "DIGEST", "files": []},
        {"schema_version": 1, "manifest_digest": "DIGEST", "files": {"config.json": 7}},
        {"schema_version": 1, "manifest_digest": "DIGEST", "files": {"config.json": []}, "request": []},
        {"schema_version": 1, "manifest_digest": None, "files": {}, "request": None},
        [],
        None,
    ],
)
def test_a_record_that_can_not_be_read_is_none(want, record):
    request = want()
    digest = run_stage(request).manifest.digest
    text = json.dumps(record).replace("DIGEST", digest)
    request.proof_path.write_text(text)

    with pytest.raises(NotIntactError):
        verify_published(request.root, "tiny", deep=False)
    staged(request.root)
    outcome = run_stage(request)

    assert outcome.action == "rehash"
    assert "every sha256 is right" in verify_published(request.root, "tiny", deep=True)


def test_an_unfinished_copy_of_another_revision_counts_as_room(tmp_path):
    """Staging removes it, so the check before must not refuse for want of its room."""
    cache = Cache(tmp_path / "hub").add(model_files(size=500_000))
    with mounted(tmp_path / "small", 3) as shm:
        (shm / ".model-stage/tiny").mkdir(parents=True)
        stale = shm / "tiny.partial-0123456789ab"
        stale.mkdir()
        (stale / "model.safetensors").write_bytes(b"1" * 2_000_000)
        wanted = ["--name", "tiny", "--repo", "lab/tiny", "--root", shm, "--source", f"hf_cache={cache.path}"]

        checked = stager("check", *wanted)
        done = stager("stage", *wanted)

        assert checked.returncode == 0, checked.stderr
        assert done.returncode == 0, done.stderr
        assert not stale.exists()


def test_a_file_whose_name_is_not_text_is_told(want):
    request = want()
    run_stage(request)
    (request.published / b"bad\xff.txt".decode(errors="surrogateescape")).write_bytes(b"1")

    done = stager(
        "check", "--name", "tiny", "--root", request.root, "--source", f"directory={request.published}"
    )
    verified = stager("verify", "--name", "tiny", "--root", request.root)

    assert "Traceback" not in done.stderr + verified.stderr
    assert verified.returncode == 6
    assert "does not belong there" in verified.stderr


def test_two_stagers_never_fill_one_folder(want):
    """The lock's file may be gone: somebody has removed the stager's own folder while one is at work."""
    request = want()
    partial = request.root / f"tiny.partial-{make_plan(request).manifest.digest[:12]}"
    partial.mkdir()

    with lock.folder_held(partial, "tiny"), pytest.raises(BusyError, match=r"another stager is at work in"):
        run_stage(request)

    assert run_stage(request).changed


def test_a_folder_that_was_exchanged_while_it_was_filled_is_not_published(want, monkeypatch):
    request = want()

    def exchange(stager):
        partial = stager._partial
        shutil.rmtree(partial)
        partial.mkdir()
        (partial / "config.json").write_bytes(b"half")

    with monkeypatch.context() as patched:
        patched.setattr(Stager, "_require_exact", exchange)
        with pytest.raises(StagerError, match="was removed while it was filled: run again"):
            run_stage(request)
    there = request.published.exists()

    assert not there
    assert run_stage(request).changed
