"""Staging as a whole: what is under the model's name afterwards, and what was copied for it."""

import json
import os
import threading

import pytest
from model_stager import proof
from model_stager.plan import make_plan

from .conftest import COMMIT, Cache, model_files, needed, published, run_stage


@pytest.mark.parametrize("tree", [True, False], ids=["by the hub's list", "by the blobs' names"])
def test_a_model_is_published_whole_with_its_manifest(tmp_path, want, files, tree):
    cache = Cache(tmp_path / "other").add(files, tree=tree)
    request = want(type(want().sources[0])("hf_cache", cache.path))

    outcome = run_stage(request)

    assert published(request) == needed(files)
    assert outcome.action == "stage"
    assert outcome.by_source == {"the HF cache": {"files": 5, "bytes": outcome.manifest.total_bytes}}
    assert outcome.manifest.revision == COMMIT
    assert request.manifest_path.is_file()
    assert not list(request.root.glob("*.partial-*"))


def test_the_digest_does_not_depend_on_how_the_sums_were_known(tmp_path, want, files):
    by_blobs = Cache(tmp_path / "other").add(files, tree=False)
    other = want(type(want().sources[0])("hf_cache", by_blobs.path))

    assert make_plan(want()).manifest.digest == make_plan(other).manifest.digest


def test_a_second_run_proves_and_copies_nothing(want, root):
    run_stage(want())
    before = proof.take(root / "tiny")

    outcome = run_stage(want())

    assert (outcome.action, outcome.changed, outcome.copied_bytes) == ("none", False, 0)
    assert proof.take(root / "tiny") == before


def test_the_proof_holds_when_every_source_is_gone(want, cache):
    run_stage(want())
    cache.path.rename(cache.path.with_name("away"))

    assert run_stage(want()).action == "none"


SHARD = "model-00002-of-00003.safetensors"


def truncate(folder):
    os.truncate(folder / SHARD, 100)


def replace(folder):
    (folder / "new").write_bytes(b"\1" * (folder / SHARD).stat().st_size)
    (folder / "new").rename(folder / SHARD)


def overwrite(folder):
    with (folder / SHARD).open("r+b") as stream:
        stream.seek(200_000)
        stream.write(b"changed")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (truncate, f"{SHARD} has 100 bytes, 301117 were published"),
        (replace, f"{SHARD} was replaced"),
        (overwrite, f"{SHARD} was touched since it was published"),
        (lambda folder: (folder / SHARD).unlink(), f"{SHARD} is missing"),
    ],
    ids=["truncated", "replaced", "overwritten", "missing"],
)
def test_only_the_damaged_file_is_staged_again(want, files, damage, said):
    run_stage(want())
    damage(want().published)

    outcome = run_stage(want())

    assert published(want()) == needed(files)
    assert outcome.why == [said]
    assert outcome.copied_bytes == len(files[SHARD])
    assert run_stage(want()).action == "none"


def test_a_touched_file_with_the_right_contents_is_hashed_not_copied(want):
    run_stage(want())
    (want().published / SHARD).touch()

    outcome = run_stage(want())

    assert (outcome.action, outcome.copied_bytes) == ("rehash", 0)
    assert run_stage(want()).action == "none"


def test_a_file_that_does_not_belong_is_taken_away(want, files):
    run_stage(want())
    (want().published / "notes.txt").write_text("mine")

    outcome = run_stage(want())

    assert outcome.why == ["notes.txt does not belong there"]
    assert published(want()) == needed(files)
    assert outcome.copied_bytes == 0


def test_a_byte_that_changed_without_a_trace_is_found_by_a_full_check(want, files):
    run_stage(want())
    path = want().published / SHARD
    overwrite(want().published)
    record = proof.read(want().proof_path)
    record["files"][SHARD] = proof.stamp(path.stat())
    want().proof_path.write_text(json.dumps(record))

    quick, deep = run_stage(want()), run_stage(want(), deep=True)

    assert quick.action == "none"
    assert (deep.action, deep.changed, deep.copied_bytes) == ("stage", True, len(files[SHARD]))
    assert published(want()) == needed(files)


def test_a_full_check_that_finds_nothing_changes_nothing(want):
    run_stage(want())

    outcome = run_stage(want(), deep=True)

    assert (outcome.action, outcome.changed) == ("rehash", False)


def test_a_right_copy_without_a_record_is_taken_over(want, files):
    """Somebody has copied it by hand, or the proof was lost."""
    want().published.mkdir()
    for name, content in needed(files).items():
        (want().published / name).write_bytes(content)

    outcome = run_stage(want())

    assert (outcome.action, outcome.copied_bytes, outcome.changed) == ("rehash", 0, True)
    assert run_stage(want()).action == "none"


def test_another_revision_takes_the_place_of_the_old_one(want, cache):
    run_stage(want())
    newer = model_files(seed=2)
    cache.add(newer, commit="d" * 40, branch="main")

    outcome = run_stage(want())

    assert published(want()) == needed(newer)
    assert outcome.manifest.revision == "d" * 40
    assert sorted(path.name for path in want().root.iterdir()) == [
        ".model-stage",
        "tiny",
        "tiny.manifest.json",
        "tiny.proof.json",
    ]


def test_nobody_ever_sees_half_a_model(want, cache):
    """While old contents are replaced again and again, a reader finds all of one revision or of the other."""
    run_stage(want())
    sums, ended, seen = {}, threading.Event(), []
    for seed, commit in ((1, COMMIT), (2, "d" * 40)):
        contents = needed(model_files(seed=seed))
        sums[commit] = {name: len(content) for name, content in contents.items()}

    def look():
        while not ended.is_set():
            descriptor = os.open(want().published, os.O_RDONLY | os.O_DIRECTORY)
            try:
                names = os.listdir(descriptor)  # noqa: PTH208 - of an open folder
                seen.append({name: os.stat(name, dir_fd=descriptor).st_size for name in names})
            except FileNotFoundError:
                pass  # it was exchanged while we looked into the old one, which is being removed
            finally:
                os.close(descriptor)

    reader = threading.Thread(target=look)
    reader.start()
    cache.add(model_files(seed=2), commit="d" * 40, branch="other")
    for revision in ("other", "main", "other", "main"):
        run_stage(want(revision=revision))
        (whole,) = [{name: len(c) for name, c in published(want()).items()}]
        assert whole in sums.values()
    ended.set()
    reader.join()

    assert seen
    assert all(set(found) <= set(sums[COMMIT]) for found in seen)


def test_a_file_of_the_published_model_is_never_written_to(want, files):
    """A repair that was killed after linking: the partial folder shares files with the published one."""
    run_stage(want())
    request = want()
    digest = make_plan(request).manifest.digest
    partial = request.root / f"tiny.partial-{digest[:12]}"
    partial.mkdir()
    os.link(request.published / SHARD, partial / SHARD)
    truncate(request.published)
    reader = (request.published / SHARD).open("rb")

    run_stage(request)

    assert published(request) == needed(files)
    assert len(reader.read()) == 100, "whoever has the old file open still has the old file"
    reader.close()


def test_include_and_exclude_choose_the_files(want, files):
    request = want(include=("*.json", "model-00001*"), exclude=("*.index.json",))

    run_stage(request)

    assert sorted(published(request)) == ["config.json", "model-00001-of-00003.safetensors"]
