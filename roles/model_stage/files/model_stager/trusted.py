"""Make a manifest from a copy that is trusted, and hold a published copy against the manifest beside it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from model_stager import proof
from model_stager.errors import BadRequestError, NotIntactError, SourceUnusableError
from model_stager.manifest import (
    FileEntry,
    Manifest,
    hash_file,
    read_manifest,
    require_safe_name,
    sorted_entries,
)
from model_stager.text import bytes_text, count_text, seconds_text, some_text
from model_stager.torn import require_sound

if TYPE_CHECKING:
    from pathlib import Path


def create_manifest(folder: Path, name: str, repo: str | None, revision: str | None) -> Manifest:
    """Hash every file of the folder; a file that is plainly torn is refused, as trust would be misplaced."""
    if not folder.is_dir():
        raise BadRequestError(f"{folder} is no folder")
    entries = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if any(part.startswith(".") for part in inside.parts):
            continue
        require_safe_name(inside.as_posix(), str(folder))
        if path.is_symlink() and not path.is_file():
            what = "a link to a folder: put the folder there" if path.is_dir() else "a dangling link"
            raise BadRequestError(f"{folder} can't be trusted: {inside} is {what}")
        if not path.is_file():
            continue
        size, sha256 = hash_file(path)
        entry = FileEntry(inside.as_posix(), size, sha256)
        try:
            require_sound(path, entry)
        except SourceUnusableError as exc:
            raise BadRequestError(f"{folder} can't be trusted: {exc}") from exc
        entries.append(entry)
    if not entries:
        raise BadRequestError(f"{folder} has no files")
    return Manifest(name, repo, revision, "trusted_copy", sorted_entries(entries))


def verify_published(root: Path, name: str, *, deep: bool) -> str:
    """One line when all is right; else NotIntactError with what is wrong."""
    started = time.perf_counter()
    if not os.path.lexists(root / name) and not os.path.lexists(root / f"{name}.manifest.json"):
        raise BadRequestError(f"{root} has no {name}")
    folder, manifest = root / name, read_manifest(root / f"{name}.manifest.json")
    comparison = proof.compare(folder, proof.read(root / f"{name}.proof.json"), manifest.digest)
    wrong = comparison.sentences()
    if deep:
        wrong = [sentence for sentence in wrong if not comparison.no_record]
        wrong += _wrong_sums(folder, manifest, set(comparison.faults))
    spent = seconds_text(time.perf_counter() - started)
    if wrong:
        raise NotIntactError(f"{folder} is not intact: {some_text(wrong, 5)}")
    how = "every sha256 is right" if deep else "unchanged since it was published"
    files = count_text(len(manifest.files), "file")
    return f"{folder}: {files}, {bytes_text(manifest.total_bytes)}, {how} ({spent})"


def _wrong_sums(folder: Path, manifest: Manifest, known: set[str]) -> list[str]:
    wrong = []
    for entry in manifest.files:
        if entry.name in known:
            continue
        try:
            size, sha256 = hash_file(folder / entry.name)
        except OSError as exc:
            wrong.append(f"{entry.name}: {exc.strerror}")
            continue
        if (size, sha256) != (entry.size_bytes, entry.sha256):
            wrong.append(f"{entry.name} has sha256 {sha256}, the manifest says {entry.sha256}")
    return wrong
