"""What a model consists of: its files with size and sha256."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from model_stager.errors import BadRequestError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "recover-and-bench/manifest"
# 1: the first.
SCHEMA_VERSION = 1

SHA256 = re.compile(r"^[0-9a-f]{64}$")
ORIGINS = ("hf_tree", "hf_blobs", "trusted_copy")


@dataclass(frozen=True)
class FileEntry:
    """One file. A source may know less than all: then the size, or one of the hashes, is None."""

    name: str
    size_bytes: int | None
    sha256: str | None
    git_sha1: str | None = None  # the hub names small files by their git blob id


@dataclass(frozen=True)
class Manifest:
    """All files of a model, in the order of their names."""

    model: str
    repo: str | None
    revision: str | None
    origin: str
    files: tuple[FileEntry, ...]

    @property
    def total_bytes(self) -> int:
        return sum(entry.size_bytes or 0 for entry in self.files)

    @property
    def complete(self) -> bool:
        return all(entry.sha256 and entry.size_bytes is not None for entry in self.files)

    @property
    def digest(self) -> str:
        """What the contents are, whatever the model is called and wherever it came from."""
        lines = "".join(f"{entry.sha256}  {entry.size_bytes}  {entry.name}\n" for entry in self.files)
        return hashlib.sha256(lines.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "repo": self.repo,
            "revision": self.revision,
            "origin": self.origin,
            "digest": self.digest,
            "total_bytes": self.total_bytes,
            "files": [
                {"name": entry.name, "size_bytes": entry.size_bytes, "sha256": entry.sha256}
                for entry in self.files
            ],
        }


def sorted_entries(entries: list[FileEntry]) -> tuple[FileEntry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.name))


def require_safe_name(name: str, where: str) -> str:
    """Refuse a file name that would leave the model's folder."""
    parts = name.split("/")
    if not name or name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise BadRequestError(f"{where}: {name!r} is no file name inside a model's folder")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadRequestError(f"{where}: {name!r} is no file name in UTF-8") from None
    return name


def read_manifest(path: Path) -> Manifest:
    """Read a manifest that this program wrote."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise BadRequestError(f"the manifest {path} can't be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise BadRequestError(f"the manifest {path} is no JSON ({exc})") from exc
    return parse_manifest(raw, str(path))


def parse_manifest(raw: object, where: str) -> Manifest:
    """Check a manifest that was read; the message names the key that is wrong."""
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise BadRequestError(f"{where} is no model manifest (its schema should be {SCHEMA})")
    version = raw.get("schema_version")
    if version != SCHEMA_VERSION:
        raise BadRequestError(f"{where} has schema version {version}, this program reads {SCHEMA_VERSION}")
    try:
        manifest = Manifest(
            model=str(raw["model"]),
            repo=raw["repo"],
            revision=raw["revision"],
            origin=str(raw["origin"]),
            files=sorted_entries([_parse_entry(entry, where) for entry in raw["files"]]),
        )
        digest = raw["digest"]
    except (KeyError, TypeError) as exc:
        raise BadRequestError(
            f"{where} is not a whole manifest: {exc} is missing or of the wrong kind"
        ) from exc
    if not manifest.files:
        raise BadRequestError(f"{where} names no file")
    if len({entry.name for entry in manifest.files}) != len(manifest.files):
        raise BadRequestError(f"{where} names a file twice")
    names = {entry.name for entry in manifest.files}
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    if names & folders:
        raise BadRequestError(f"{where} names {min(names & folders)} as a file and as a folder")
    if digest != manifest.digest:
        raise BadRequestError(
            f"{where} has been edited: its digest is {digest}, its files give {manifest.digest}"
        )
    return manifest


def _parse_entry(raw: dict[str, Any], where: str) -> FileEntry:
    name, size, sha256 = raw["name"], raw["size_bytes"], raw["sha256"]
    require_safe_name(name, where)
    if type(size) is not int or size < 0 or not SHA256.match(sha256):
        raise BadRequestError(f"{where}: {name} needs size_bytes (a whole number) and sha256 (64 hex digits)")
    return FileEntry(name, size, sha256)


def write_whole(path: Path, value: object) -> None:
    """Write JSON so that a reader sees the old file or the new one, never a half."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def hash_file(path: Path) -> tuple[int, str]:
    """Size and sha256 of a file."""
    sha256, count = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as stream:
        buffer = memoryview(bytearray(1 << 20))
        while got := stream.readinto(buffer):
            sha256.update(buffer[:got])
            count += got
    return count, sha256.hexdigest()


def git_blob_id(content: bytes) -> str:
    """How git, and so the hub, names a small file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
