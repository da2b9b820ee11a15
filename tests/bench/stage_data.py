"""Random safetensors in the layout of huggingface_hub's cache, and what to do with their pages."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "be9c" + "0" * 36
MB = 1 << 20


def make_cache(hub: Path, *, gigabytes: float, files: int) -> Path:
    """A cache of one model; returns its snapshot."""
    repo = hub / "models--bench--random"
    snapshot = repo / "snapshots" / COMMIT
    for folder in (repo / "blobs", repo / "refs", snapshot):
        folder.mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    size = int(gigabytes * 1e9 / files) // MB * MB
    for number in range(files):
        name = f"model-{number + 1:05d}-of-{files:05d}.safetensors"
        header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        scratch, digest = repo / "blobs" / "new", hashlib.sha256()
        with scratch.open("wb") as stream:
            for block in (len(header).to_bytes(8, "little") + header, *_random_blocks(size)):
                stream.write(block)
                digest.update(block)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.rename(repo / "blobs" / digest.hexdigest())
        (snapshot / name).symlink_to(f"../../blobs/{digest.hexdigest()}")
    config = b"{}"
    blob = hashlib.sha1(b"blob %d\0" % len(config) + config, usedforsecurity=False).hexdigest()
    (repo / "blobs" / blob).write_bytes(config)
    (snapshot / "config.json").symlink_to(f"../../blobs/{blob}")
    return snapshot


def _random_blocks(size: int) -> list[bytes]:
    one = os.urandom(16 * MB)  # repeated: what is copied and hashed does not depend on it
    return [one] * (size // len(one)) + [one[: size % len(one)]]


def weights(snapshot: Path) -> dict[str, str]:
    """Name of each weight file → its sha256."""
    return {path.name: path.resolve().name for path in sorted(snapshot.glob("*.safetensors"))}


def drop(snapshot: Path) -> None:
    """Take the model's files out of the page cache."""
    for path in snapshot.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def warm(snapshot: Path) -> None:
    for path in snapshot.iterdir():
        with path.open("rb", buffering=0) as stream:
            while stream.read(16 * MB):
                pass
