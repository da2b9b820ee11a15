"""The module on a real small tmpfs: what makes way, what grows, what waits, what is served from a disk."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from model_stager.request import Request, SourceSpec

from .conftest import COMMIT, REPO, Cache, model_files, run_stage
from .playing import model
from .small_tmpfs import MIB, mounted, options, size_mib


@pytest.fixture
def root(tmp_path):
    """A tmpfs of 4 MiB: room for two small models."""
    with mounted(tmp_path / "small", 4) as folder:
        yield folder


@pytest.fixture
def caches(tmp_path):
    """Models of about 1.5 MB each, of different contents."""
    return {
        name: Cache(tmp_path / f"hub-{name}").add(model_files(size=500_000, seed=seed))
        for seed, name in enumerate(("a", "b", "c"))
    }


def used(root, name, days):
    stamp = time.time() - days * 86_400
    os.utime(root / f"{name}.proof.json", (stamp, stamp))


def names(root):
    return sorted(path.name for path in root.iterdir() if path.is_dir() and path.name != ".model-stage")


@pytest.fixture
def full(root, caches):
    """Two models of earlier plans: a is the least recently used one."""
    for name in "ab":
        sources = (SourceSpec("hf_cache", caches[name].path),)
        run_stage(Request(name=name, root=root, repo=REPO, sources=sources))
    used(root, "a", 9)
    used(root, "b", 2)
    return [model("c", caches["c"])]


def test_without_being_allowed_old_models_stay_and_are_named(play, full, root):
    predicted, refused = play(full, check=True), play(full)

    assert refused["msg"] == predicted["msg"]
    assert f"c: {root} (tmpfs) has " in refused["msg"]
    assert "a (1.5 MB, last used 9 days ago), b (1.5 MB, last used 2 days ago)" in refused["msg"]
    assert "model_stage_remove_allowed lets old models be removed" in refused["msg"]
    assert names(root) == ["a", "b"]


def test_the_least_recently_used_one_makes_way_as_predicted(play, full, root):
    predicted, before = play(full, check=True, remove_allowed=True), names(root)
    first, second = play(full, remove_allowed=True), play(full, remove_allowed=True)

    assert before == ["a", "b"]
    assert (predicted["changed"], first["changed"], second["changed"]) == (True, True, False)
    assert predicted["summary"].startswith(
        "would be removed: a (1.5 MB, last used 9 days ago); c: would copy"
    )
    assert first["summary"].startswith(
        "removed: a (1.5 MB, last used 9 days ago); c: 1.5 MB from the HF cache"
    )
    assert second["summary"].startswith("c: already in")
    assert names(root) == ["b", "c"]


def test_one_that_the_plan_needs_never_makes_way(play, full, root, caches):
    first = play([model("a", caches["a"]), *full], remove_allowed=True)

    assert first["summary"].startswith("removed: b (")
    assert names(root) == ["a", "c"]


def test_one_that_is_read_never_makes_way_and_its_reader_is_named(play, full, root):
    code = "import mmap, sys; f = open(sys.argv[1]); m = mmap.mmap(f.fileno(), 0, prot=1); print(flush=True)"
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", f"{code}; sys.stdin.read()", next((root / name).glob("*.safetensors"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name in ("a", "b")
    ]
    for reader in readers:
        reader.stdout.readline()
    both = play(full, remove_allowed=True)
    readers[1].communicate()
    one = play(full, check=True, remove_allowed=True)
    readers[0].communicate()

    assert f"a is in use by pid {readers[0].pid} ({sys.executable}" in both["msg"]
    assert f"b is in use by pid {readers[1].pid}" in both["msg"]
    assert one["summary"].startswith("would be removed: b (")
    assert names(root) == ["a", "b"]


def test_an_unknown_folder_is_nobodys_to_remove(play, caches, root):
    (root / "theirs").mkdir()
    (root / "theirs/data").write_bytes(b"1" * 3 * MIB)

    result = play([model("c", caches["c"])], remove_allowed=True)

    assert "has 1.0 MB free, the model needs 1.6 MB" in result["msg"]
    assert names(root) == ["theirs"]


def test_the_tmpfs_grows_as_predicted_and_only_as_far_as_needed(play, full, root):
    predicted, before = play(full, check=True, grow_allowed=True, remove_allowed=True), size_mib(root)
    first, second = play(full, grow_allowed=True), play(full, grow_allowed=True)

    assert before == 4
    assert (predicted["changed"], first["changed"], second["changed"]) == (True, True, False)
    assert predicted["summary"].startswith(f"{root} would be grown from 4.2 MB to 5.")
    assert first["summary"].startswith(f"{root} grown from 4.2 MB to 5.")
    assert ", until the next reboot; c: 1.5 MB from the HF cache" in first["summary"]
    assert 5 < size_mib(root) < 6.5
    assert {"nosuid", "nodev", "rw"} <= set(options(root)), "the other options are as they were"
    assert names(root) == ["a", "b", "c"]


def test_memory_is_where_growing_ends(play, full, root):
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal"))

    result = play(full, grow_allowed=True, reserve_bytes=total - 64 * MIB)

    assert "are reserved for the engine" in result["msg"]
    assert size_mib(root) == 4


SETS = [["a"], ["a", "b"], ["c"]]


@pytest.fixture
def plan(caches):
    return [model(name, cache) for name, cache in caches.items()]


def test_a_switch_that_is_not_allowed_is_refused_by_name(play, plan, root):
    result = play(plan, sets=SETS)

    assert result["msg"].startswith(f"a and b and c: {root} (tmpfs) has ")
    assert "model_stage_switch_allowed lets them take each other's place" in result["msg"]
    assert names(root) == []


def test_what_does_not_fit_beside_the_others_waits_and_is_known(play, plan, root):
    arguments = {"sets": SETS, "switch_allowed": True}
    predicted, first, second = (
        play(plan, check=True, **arguments),
        play(plan, **arguments),
        play(plan, **arguments),
    )

    said = (
        f"c: 1.6 MB do not fit beside a (1.6 MB), b (1.6 MB) in {root}; "
        "it takes its place when its first configuration's turn comes"
    )
    wanted = set(model_files()) - {"README.md"}
    for result in (predicted, first, second):
        assert result["summary"].endswith(said)
        assert result["paths"] == {name: f"{root}/{name}" for name in "abc"}
        assert sorted(result["digests"]) == ["a", "b", "c"]
        assert sorted(result["bytes"]) == ["a", "b"], "what memory has to hold at the same time"
        assert {name: set(files) for name, files in result["deferred"].items()} == {"c": wanted}
        assert [file["name"] for file in result["plan"]["files"]] == ["plan.json"]
        assert json.loads(result["plan"]["files"][0]["content"])["sets"] == SETS
    assert (predicted["changed"], first["changed"], second["changed"]) == (True, True, False)
    assert names(root) == ["a", "b"]
    assert [record["action"] for record in second["models"]] == ["none", "none", "deferred"]
    assert [held["name"] for held in second["holds"]] == ["a", "b"]


def test_a_plan_that_fits_needs_no_switch(play, plan):
    result = play(plan[:2], sets=SETS[:2], switch_allowed=True)

    assert (result["plan"], result["deferred"]) == (None, {})


def test_a_model_larger_than_the_root_is_served_from_disk(play, caches, root, tmp_path):
    large = Cache(tmp_path / "large").add(model_files(size=2_000_000))
    models = [model("large", large), model("a", caches["a"])]
    arguments = {"state_dir": str(tmp_path / "state")}
    predicted, first, second = (
        play(models, check=True, **arguments),
        play(models, **arguments),
        play(models, **arguments),
    )

    folder = str(large.repo / "snapshots" / COMMIT)
    assert (predicted["changed"], first["changed"], second["changed"]) == (True, True, False)
    for result in (predicted, first, second):
        assert result["paths"] == {"large": folder, "a": f"{root}/a"}
        assert list(result["bytes"]) == ["a"]
        assert f"large: 6.0 MB does not fit into {root} (4.2 MB): " in result["summary"]
    assert f"served from the HF cache on disk ({folder}; " in first["summary"]
    assert names(root) == ["a"]
    assert json.loads((tmp_path / "state/large.proof.json").read_text())["folder"] == folder


def test_a_model_may_be_kept_out_of_memory(play, caches, root, tmp_path):
    models = [model("a", caches["a"], in_memory=False), model("b", caches["b"])]

    result = play(models, state_dir=str(tmp_path / "state"))

    assert (
        "a: 1.5 MB are not to be in memory (in_memory: false): served from the HF cache" in result["summary"]
    )
    assert names(root) == ["b"]


def test_asking_for_a_model_renews_its_last_use_and_checking_does_not(play, full, root, caches):
    asked = [model("a", caches["a"])]
    before = (root / "a.proof.json").stat().st_mtime
    play(asked, check=True)
    checked = (root / "a.proof.json").stat().st_mtime
    result = play(asked)

    assert checked == before
    assert [record["action"] for record in result["models"]] == ["none"]
    assert time.time() - (root / "a.proof.json").stat().st_mtime < 60
