"""The ladder: which source gives which file, and what is said about those that can't."""

import json
import os
import shutil
import subprocess

import pytest
from model_stager.errors import BadRequestError, NoSourceError
from model_stager.plan import make_plan
from model_stager.request import SourceSpec
from model_stager.trusted import create_manifest

from .conftest import model_files, needed, published, run_stage

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def directory(tmp_path, files):
    """A whole copy on another disk, without a manifest."""
    folder = tmp_path / "disk" / "tiny"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def gone_on(want, cached, directory):
    """Stage from the damaged cache with a whole directory behind it."""
    outcome = run_stage(want(cached, directory))
    assert outcome.by_source[f"the directory {directory}"]["files"] == 1
    assert outcome.by_source["the HF cache"]["files"] == 4
    return outcome.gone_on


def rewrite(cache, content):
    cache.blob(SHARD).write_bytes(content)


def padded(start, cache):
    return start + b"\n" * (cache.blob(SHARD).stat().st_size - len(start))


DAMAGES = {
    "blob cleared": (lambda cache: cache.blob(SHARD).unlink(), "is a dangling link (its blob is gone)"),
    "cut": (lambda cache: os.truncate(cache.blob(SHARD), 5000), "has 5000 bytes, the manifest says 301117"),
    "download unfinished": (
        lambda cache: cache.blob(SHARD).rename(f"{cache.blob(SHARD)}.1a2b.incomplete"),
        "was never downloaded to its end",
    ),
    "LFS pointer": (
        lambda cache: rewrite(cache, b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"),
        "it is a Git LFS pointer",
    ),
    "HTML page": (
        lambda cache: rewrite(cache, padded(b"<!DOCTYPE html><html>429 Too Many Requests", cache)),
        "it is an HTML page",
    ),
    "zeros": (
        lambda cache: rewrite(cache, bytes(cache.blob(SHARD).stat().st_size)),
        "it holds only zeros where it was looked at",
    ),
    "header of another length": (
        lambda cache: rewrite(cache, cache.blob(SHARD).read_bytes().replace(b"301000]}", b"301001]}")),
        "its safetensors header asks for 301118 bytes, it has 301117",
    ),
    "flipped byte": (
        lambda cache: rewrite(cache, cache.blob(SHARD).read_bytes()[:-1] + b"\0"),
        "the manifest says",
    ),
    "folder in its place": (
        lambda cache: (cache.blob(SHARD).unlink(), cache.blob(SHARD).mkdir()),
        "is no file",
    ),
}


@pytest.mark.parametrize(("spoil", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_torn_file_is_named_and_taken_from_the_next_source(want, cache, directory, spoil, said):
    spoil(cache)

    reason = gone_on(want, SourceSpec("hf_cache", cache.path), directory)

    assert reason.startswith(f"the HF cache: {SHARD}")
    assert said in reason
    assert published(want()) == needed(model_files())


def test_a_wrong_sum_names_both_sums_and_the_file(want, cache, files):
    rewrite(cache, cache.blob(SHARD).read_bytes()[:-1] + b"\0")

    with pytest.raises(NoSourceError) as caught:
        run_stage(want())

    message = str(caught.value)
    assert str(cache.repo / "snapshots") in message
    assert message.count("sha256") == 1
    assert "the manifest says" in message
    assert not want().published.exists()


def test_a_link_through_another_disk_still_names_its_hash(want, cache, tmp_path, files):
    (cache.repo / "trees").rename(cache.repo / "no-trees")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    blob = cache.blob(SHARD)
    blob.rename(elsewhere / "data")
    blob.symlink_to(elsewhere / "data")

    run_stage(want())

    assert published(want()) == needed(files)


def test_a_lost_snapshot_link_is_no_loss_while_its_blob_is_there(want, cache, files):
    (cache.repo / "snapshots" / ("c0ffee" + "0" * 34) / SHARD).unlink()

    run_stage(want())

    assert published(want()) == needed(files)


def test_small_files_are_checked_by_gits_id(want, cache, cached, directory):
    cache.blob("config.json").write_bytes(b'{"architectures": ["Tony"]}')

    reason = gone_on(want, cached, directory)

    assert reason.startswith("the HF cache: config.json has git blob id ")
    assert "it should be" in reason


def test_a_plain_file_in_the_snapshot_has_no_known_sum(want, cache):
    shutil.rmtree(cache.repo / "trees")
    path = cache.repo / "snapshots" / ("c0ffee" + "0" * 34) / "config.json"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)

    with pytest.raises(NoSourceError, match=r"no checksum is known for config\.json: it is a plain file"):
        run_stage(want())


def test_a_directory_is_believed_by_the_manifest_beside_it(want, directory, files):
    request = want(directory, repo=None)
    with pytest.raises(NoSourceError, match=rf"there is no manifest {directory}\.manifest\.json"):
        run_stage(request)
    manifest = create_manifest(directory, "tiny", None, None)
    directory.with_name("tiny.manifest.json").write_text(json.dumps(manifest.to_json()))

    outcome = run_stage(request)

    assert published(request) == dict(sorted(files.items()))
    assert outcome.manifest.origin == "trusted_copy"


def test_every_source_says_why_it_can_not(want, cache, cached, tmp_path):
    shutil.rmtree(cache.repo / "blobs")

    with pytest.raises(NoSourceError) as caught:
        run_stage(want(cached, tmp_path / "nowhere", SourceSpec("hf_cache", tmp_path / "empty")))

    message = str(caught.value)
    assert "is a dangling link" in message
    assert f"the directory {tmp_path}/nowhere: {tmp_path}/nowhere does not exist" in message
    assert not want().published.exists()


def test_a_revision_that_is_not_there_is_named_with_those_that_are(want):
    with pytest.raises(NoSourceError, match=r"has no revision 'v2' \(it has main, c0ffee0+\)"):
        make_plan(want(revision="v2"))


def test_a_model_that_is_not_there_is_named_with_those_that_are(want, cache):
    with pytest.raises(NoSourceError, match=r"has no models--lab--other \(it has models--lab--tiny\)"):
        make_plan(want(repo="lab/other"))


def test_a_cache_that_is_not_there_is_named(want, tmp_path):
    with pytest.raises(NoSourceError, match=f"the HF cache: there is no folder {tmp_path}/none"):
        make_plan(want(SourceSpec("hf_cache", tmp_path / "none")))


def test_a_model_that_lacks_a_shard_of_its_index_is_refused_before_a_byte_is_copied(want, root):
    with pytest.raises(
        NoSourceError, match=r"lacks model-00003-of-00003\.safetensors, so no engine can load"
    ):
        run_stage(want(exclude=("model-00003*",)))

    assert not (root / "tiny").exists()
    assert not list(root.glob("*.partial-*"))


def test_a_file_that_the_user_may_not_read_is_named(want, cache, tmp_path):
    """As another user, for whom the mode counts."""
    cache.blob(SHARD).chmod(0o600)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o005)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"]
    code = "from model_stager.cli import main; import sys; sys.exit(main())"
    arguments = ["check", "--name", "tiny", "--repo", "lab/tiny", "--root", str(want().root)]
    done = subprocess.run(
        [*command, "-c", code, *arguments, "--source", f"hf_cache={cache.path}"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": "roles/model_stage/files", "PYTHONDONTWRITEBYTECODE": "1"},
    )

    assert done.returncode == 3
    assert f"{SHARD} can't be read by uid 65534: Permission denied" in done.stderr


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "../tiny"}, "is no name for a model"),
        ({"repo": "a/b/c"}, "it should look like `organisation/model`"),
        ({"repo": None}, "a source of kind hf_cache needs the repo"),
    ],
    ids=["name", "repo", "no repo"],
)
def test_a_request_that_makes_no_sense_is_refused(want, fields, said):
    with pytest.raises(BadRequestError, match=said):
        want(**fields)


def test_a_source_that_hangs_is_left_before_a_byte_is_copied(want, cache, cached, directory, files):
    """A pipe that nobody writes to: reading it hangs in the kernel, as a mount without its server does."""
    branch = cache.repo / "refs/main"
    commit = branch.read_text()
    branch.unlink()
    os.mkfifo(branch)
    manifest = create_manifest(directory, "tiny", None, None)
    directory.with_name("tiny.manifest.json").write_text(json.dumps(manifest.to_json()))

    outcome = run_stage(want(cached, directory, stall_s=0.3))
    branch.write_text(commit)  # lets the thread end that was left behind

    assert outcome.gone_on == "the HF cache: no answer for 0.3 s: is its mount gone?"
    assert published(want()) == dict(sorted(files.items()))


def test_a_manifest_of_another_revision_finds_its_snapshot(want, cache, directory, files, tmp_path):
    """The branch has moved on, the older revision is still in the cache."""
    path = tmp_path / "older.json"
    path.write_text(json.dumps(create_manifest(directory, "tiny", None, None).to_json()))
    newer = model_files(seed=2)
    newer["config.json"] = b'{"architectures": ["Tony"]}'
    cache.add(newer, commit="b" * 40)
    request = want(manifest=path)

    run_stage(request)

    assert published(request) == files


def test_a_file_of_another_revision_is_not_read_to_be_refused(want, cache, directory, tmp_path):
    path = tmp_path / "newer.json"
    (directory / "model-00001-of-00003.safetensors").write_bytes(
        model_files(seed=2)["model-00001-of-00003.safetensors"]
    )
    path.write_text(json.dumps(create_manifest(directory, "tiny", None, None).to_json()))
    request = want(manifest=path)

    with pytest.raises(NoSourceError, match="has other contents in the snapshot c0ffee") as caught:
        run_stage(request)

    assert "1 file of" in str(caught.value), "before a byte is copied"
    assert not list(request.root.glob("tiny*"))


def test_a_branch_that_moves_midway_is_followed_by_the_next_run(want, cache, files):
    request = want()
    plan = make_plan(request)
    cache.add({**model_files(seed=2), "extra.json": b"{}"}, commit="b" * 40)

    again = make_plan(request, sources=plan.sources)
    later = make_plan(request)

    assert again.manifest == plan.manifest
    assert {plan.sources[0].locate(entry).path.name for entry in plan.manifest.files} == set(needed(files))
    assert later.manifest.revision == "b" * 40


def test_include_and_exclude_count_for_a_manifest_too(want, directory):
    path = directory.with_name(f"{directory.name}.manifest.json")
    path.write_text(json.dumps(create_manifest(directory, "tiny", None, None).to_json()))
    request = want(directory, exclude=("README*",))

    run_stage(request)
    again = run_stage(request)

    assert "README.md" not in published(request)
    assert again.action == "none"
    with pytest.raises(BadRequestError, match=r"none of the 6 files is wanted"):
        run_stage(want(directory, manifest=path, include=("*.gguf",)))
