"""Caches in huggingface_hub's layout with small models of random bytes; the stager on scratch folders."""

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from model_stager.request import UNNEEDED, Request, SourceSpec
from model_stager.staging import Options, stage

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/model_stage"
COMMIT = "c0ffee" + "0" * 34
REPO = "lab/tiny"


def safetensors(body):
    """A file with one tensor; the header says how long it must be."""
    tensor = {"dtype": "U8", "shape": [len(body)], "data_offsets": [0, len(body)]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "weight": tensor}).encode()
    return len(header).to_bytes(8, "little") + header + body


def model_files(*, shards=3, size=300_000, seed=1):
    """A whole model: shards, their index, config, and a document that no engine reads."""
    noise = random.Random(seed)  # noqa: S311 - no secret, the same each time
    names = [f"model-{number:05d}-of-{shards:05d}.safetensors" for number in range(1, shards + 1)]
    files = {name: safetensors(noise.randbytes(size + 1000 * place)) for place, name in enumerate(names)}
    index = {"weight_map": {f"w{place}": name for place, name in enumerate(names)}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    files["config.json"] = b'{"architectures": ["Tiny"]}'
    files["README.md"] = b"# a model\n"
    return files


class Cache:
    """A cache of huggingface_hub on disk, to be damaged by tests."""

    def __init__(self, path):
        self.path = path
        self.repo = path / "models--lab--tiny"

    def add(self, files, *, commit=COMMIT, branch="main", tree=True):
        snapshot = self.repo / "snapshots" / commit
        for folder in (self.repo / "blobs", self.repo / "refs", self.repo / "trees"):
            folder.mkdir(parents=True, exist_ok=True)
        listing = {}
        for name, content in files.items():
            git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
            sha256 = hashlib.sha256(content).hexdigest()
            large = name.endswith((".safetensors", ".gguf"))
            blob = self.repo / "blobs" / (sha256 if large else git)
            blob.write_bytes(content)
            link = snapshot / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))
            listing[name] = {"size": len(content), "blob_id": git}
            if large:
                listing[name].update(lfs_sha256=sha256, lfs_size=len(content))
        (self.repo / "refs" / branch).write_text(commit)
        if tree:
            path = self.repo / "trees" / f"{commit}.json"
            path.write_text(json.dumps({"format_version": 1, "files": listing}))
        return self

    def blob(self, name, commit=COMMIT):
        return (self.repo / "snapshots" / commit / name).resolve(strict=False)


@pytest.fixture
def files():
    return model_files()


@pytest.fixture
def cache(tmp_path, files):
    return Cache(tmp_path / "hub").add(files)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


@pytest.fixture
def want(root, cache):
    """Describe the model that is wanted; by default from the cache alone."""

    def make(*sources, **fields):
        specs = [SourceSpec("directory", path) if isinstance(path, Path) else path for path in sources]
        given = tuple(specs) or (SourceSpec("hf_cache", cache.path),)
        fields = {"name": "tiny", "root": root, "repo": REPO, **fields}
        return Request(sources=given, **fields)

    return make


@pytest.fixture
def cached(cache):
    return SourceSpec("hf_cache", cache.path)


def run_stage(request, **options):
    return stage(request, Options(threads=2, **options), threading.Event())


def published(request):
    """Every file under the model's name, with its content."""
    folder = request.published
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if not path.is_dir()
    }


def needed(files):
    return {name: content for name, content in sorted(files.items()) if not name.endswith(UNNEEDED[2][1:])}


def open_to_others(folder):
    """Pytest makes its folders for one user, and opens them to nobody at its next start again."""
    while folder != Path(tempfile.gettempdir()):
        folder.chmod(0o755)
        folder = folder.parent


def stager(*arguments, **options):
    """Run the program as an operator would."""
    command = [sys.executable, "-m", "model_stager", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROLE / "files")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **options)


def tree(folder):
    """Names, sizes and times of all that is there: what a read-only verb must leave alone."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
    }


@pytest.fixture
def play(tmp_path, root, capsys):
    """Run the module as the role does, without a user of its own and without systemd."""
    from .playing import program_lookup, run_module  # noqa: PLC0415 - it needs this file first

    def run(models, *, check=False, **arguments):
        arguments = {
            "models": models,
            "root": str(root),
            "program": program_lookup.pack(ROLE / "files/model_stager"),
            "program_dir": str(tmp_path / "program"),
            "launcher": "process",
            "wait_s": 20.0,
            "_ansible_check_mode": check,
            **arguments,
        }
        return run_module(capsys, arguments)

    return run
