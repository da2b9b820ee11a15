"""What lies in the root: published models, copies that were never finished, and when each was asked for."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model_stager import lock, proof
from model_stager.errors import BadRequestError
from model_stager.manifest import read_manifest
from model_stager.text import bytes_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTIAL = re.compile(r"^(?P<model>.+)\.partial-[0-9a-f]{12}$")
STATE = ".model-stage"
REMOVED = "removed"  # in a model's state folder: renamed aside, and perhaps not deleted to the end
BLOCK = 512
DAY_S = 86_400


@dataclass(frozen=True)
class Staged:
    """A folder that the stager made: only such may ever be removed."""

    name: str  # the folder's name
    model: str
    bytes: int  # that are free when it is gone
    last_used: float
    digest: str = ""  # of a published model's contents
    uid: int = 0

    @property
    def finished(self) -> bool:
        return self.name == self.model

    def is_stale(self, digest: str) -> bool:
        """An unfinished copy of other contents than are wanted now: its stager removes it by itself."""
        return not self.finished and not self.name.endswith(digest[:12])

    def sentence(self) -> str:
        what = "" if self.finished else "unfinished, "
        return f"{self.name} ({what}{bytes_text(self.bytes)}, last used {ago_text(self.last_used)})"


def ago_text(moment: float) -> str:
    days = (time.time() - moment) / DAY_S
    if days < 1:
        return "today"
    return "yesterday" if days < 2 else f"{days:.0f} days ago"  # noqa: PLR2004 - not yet two days


def staged(root: Path) -> list[Staged]:
    """Everything below the root that the stager can have made, least recently used first."""
    found = [*_published(root), *_unfinished(root)]
    return sorted(found, key=lambda one: (one.last_used, one.name))


def _published(root: Path) -> Iterator[Staged]:
    """With a manifest and a record of the same contents beside it, all of one owner."""
    for path in root.glob("*.manifest.json"):
        name = path.name[: -len(".manifest.json")]
        folder, proof_path = root / name, root / f"{name}.proof.json"
        record = proof.read(proof_path)
        try:
            manifest = read_manifest(path)
            owners = {one.lstat().st_uid for one in (folder, path, proof_path)}
            used = proof_path.stat().st_mtime
        except (BadRequestError, OSError):
            continue
        if record is None or folder.is_symlink() or not folder.is_dir() or len(owners) != 1:
            continue
        if record["manifest_digest"] == manifest.digest:
            yield Staged(name, name, folder_bytes(folder), used, manifest.digest, owners.pop())


def _unfinished(root: Path) -> Iterator[Staged]:
    """With the state folder of the model whose copy it is, of the same owner, and nobody at work on it."""
    for folder in root.glob("*.partial-*"):
        match = PARTIAL.match(folder.name)
        if match is None or folder.is_symlink() or not folder.is_dir():
            continue
        model = match["model"]
        state, found = root / STATE / model, folder.lstat()
        try:
            ours = not state.is_symlink() and state.lstat().st_uid == found.st_uid
        except OSError:
            continue
        if ours and not lock.is_held(state / "lock"):
            yield Staged(folder.name, model, folder_bytes(folder), found.st_mtime, uid=found.st_uid)


def folder_bytes(folder: Path) -> int:
    """What the folder takes, a file that has a second name elsewhere left out: it would stay."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(os.path.join(place, name))  # noqa: PTH118 - strings are what os.walk gives
            total += found.st_blocks * BLOCK if found.st_nlink == 1 else 0
    return total


def leftovers(root: Path) -> list[Path]:
    """Models that were renamed aside, when their deletion was cut short."""
    return [path for path in root.glob(f"{STATE}/*/{REMOVED}-*") if not path.is_symlink()]


def renew(proof_path: Path) -> None:
    """Somebody has asked for the model: it is the most recently used one now."""
    try:
        os.utime(proof_path, follow_symlinks=False)
    except OSError:  # another user's, or gone meanwhile: an older stamp only makes it go earlier
        return
