"""Read the cache of huggingface_hub: models--ORG--NAME/{refs,snapshots,blobs,trees}.

Nothing here trusts that a snapshot is whole: its links may dangle (blobs cleared to make room), a download
may never have ended (`*.incomplete`), and a link may lead through another link to a disk elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from model_stager.errors import BadRequestError, SourceUnusableError
from model_stager.manifest import SHA256, FileEntry, hash_file, require_safe_name
from model_stager.origins import SMALL
from model_stager.text import some_text

COMMIT = re.compile(r"^[0-9a-f]{40}$")
TREE_FORMAT = 1  # of trees/<commit>.json, as huggingface_hub 2.x writes it
MAX_LINKS = 8


class HfCache:
    """One model's folder in the cache."""

    def __init__(self, path: Path, repo: str) -> None:
        name = f"models--{repo.replace('/', '--')}"
        self.path = path
        self.folder = next(
            (base / name for base in (path, path / "hub") if (base / name).is_dir()), path / name
        )
        if not path.is_dir():
            raise SourceUnusableError(f"there is no folder {path}")
        if not self.folder.is_dir():
            others = sorted(entry.name for base in (path, path / "hub") for entry in base.glob("models--*"))
            have = f"it has {some_text(others)}" if others else "it has no model at all"
            raise SourceUnusableError(f"{path} has no {name} ({have})")

    def commit(self, revision: str) -> str:
        """The commit that a branch, tag or commit means here."""
        if COMMIT.match(revision) and (self.folder / "snapshots" / revision).is_dir():
            return revision
        try:
            commit = (self.folder / "refs" / revision).read_text(encoding="utf-8").strip()
        except OSError:
            raise SourceUnusableError(
                f"{self.folder} has no revision {revision!r} ({self._revisions()})"
            ) from None
        if not COMMIT.match(commit):
            raise SourceUnusableError(
                f"{self.folder}/refs/{revision} holds {commit[:60]!r}, which is no commit"
            )
        return commit

    def _revisions(self) -> str:
        refs = self.folder / "refs"
        known = [f"{path.relative_to(refs)}" for path in sorted(refs.rglob("*")) if path.is_file()]
        known += sorted(path.name for path in (self.folder / "snapshots").glob("*") if path.is_dir())
        return f"it has {some_text(known)}" if known else "it has none"

    def tree(self, commit: str) -> list[FileEntry] | None:
        """The hub's own list of the commit's files, when the cache kept it."""
        return read_tree(self.folder / "trees" / f"{commit}.json")

    def entries(self, commit: str) -> list[FileEntry]:
        """The snapshot's files, with the hash that the name of each blob gives."""
        snapshot = self.folder / "snapshots" / commit
        if not snapshot.is_dir():
            raise SourceUnusableError(f"{self.folder} has no snapshot {commit} ({self._revisions()})")
        found = []
        for root, _, names in os.walk(snapshot):
            for name in names:
                path = Path(root, name)
                try:
                    require_safe_name(str(path.relative_to(snapshot)), str(snapshot))
                except BadRequestError as exc:
                    raise SourceUnusableError(str(exc)) from exc
                found.append(_entry_by_blob(path, str(path.relative_to(snapshot))))
        if not found:
            raise SourceUnusableError(f"the snapshot {snapshot} is empty")
        return found

    def locate(self, commit: str, entry: FileEntry) -> Path:
        """The file's path, or the reason why the cache can't give it."""
        path = self.folder / "snapshots" / commit / entry.name
        there = path.is_file()
        if there and not self._is_other(path, entry):
            return path
        blobs = [self.folder / "blobs" / name for name in (entry.sha256, entry.git_sha1) if name]
        whole = next((blob for blob in blobs if blob.is_file()), None)
        if whole is None and there:
            whole = self._elsewhere(commit, entry)
        if whole is not None:  # the link is gone or of another version, the contents are there
            return whole
        if any(list(blob.parent.glob(f"{blob.name}*.incomplete")) for blob in blobs):
            raise SourceUnusableError(
                f"{entry.name} was never downloaded to its end (an .incomplete file is there)"
            )
        if there:
            raise SourceUnusableError(f"{entry.name} has other contents in the snapshot {commit[:12]}")
        if path.exists():
            raise SourceUnusableError(f"{entry.name} is no file")
        if path.is_symlink():
            raise SourceUnusableError(f"{entry.name} is a dangling link (its blob is gone)")
        raise SourceUnusableError(f"{entry.name} is not in the snapshot {commit[:12]}")

    def _elsewhere(self, commit: str, entry: FileEntry) -> Path | None:
        """In the snapshot of another commit."""
        for snapshot in sorted((self.folder / "snapshots").glob("*")):
            path = snapshot / entry.name
            if snapshot.name != commit and path.is_file() and not self._is_other(path, entry):
                return path
        return None

    def _is_other(self, path: Path, entry: FileEntry) -> bool:
        """Whether the blob's name, or what a small file holds, says that these are other contents."""
        found = _entry_by_blob(path, entry.name)
        if found.sha256 and entry.sha256:
            return found.sha256 != entry.sha256
        if found.git_sha1 and entry.git_sha1:
            return found.git_sha1 != entry.git_sha1
        if not found.git_sha1 or not entry.sha256 or (found.size_bytes or 0) > SMALL:
            return False
        many = len(list((self.folder / "snapshots").iterdir())) > 1  # else there is no other to look at
        return many and hash_file(path)[1] != entry.sha256


def read_tree(path: Path) -> list[FileEntry] | None:
    """A tree listing of the hub; None when there is none that can be understood."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["format_version"] != TREE_FORMAT:
            return None
        return [
            FileEntry(
                name=require_safe_name(name, str(path)),
                size_bytes=int(info["size"]),
                sha256=info.get("lfs_sha256"),
                git_sha1=None if info.get("lfs_sha256") else info["blob_id"],
            )
            for name, info in raw["files"].items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadRequestError):
        return None


def _entry_by_blob(path: Path, name: str) -> FileEntry:
    """Follow the links one by one: the first that is named like a hash says what the file holds."""
    size = path.stat().st_size if path.exists() else None
    step = path
    for _ in range(MAX_LINKS):
        if not step.is_symlink():
            break
        step = Path(os.path.normpath(step.parent / step.readlink()))
        if SHA256.match(step.name):
            return FileEntry(name, size, step.name)
        if COMMIT.match(step.name):
            return FileEntry(name, size, None, step.name)
    return FileEntry(name, size, None)
