"""Remove what the stager once published: under its lock, never while it is read, never half in sight."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from model_stager import lock
from model_stager.errors import BadRequestError, StagerError
from model_stager.in_use import require_unused
from model_stager.inventory import REMOVED, STATE, Staged, folder_bytes, leftovers, staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def find(root: Path, name: str) -> Staged:
    """The published model or unfinished copy of this name; anything else is refused."""
    for one in staged(root):
        if one.name == name:
            return one
    if not os.path.lexists(root / name):
        raise BadRequestError(f"{root} has no {name}")
    raise BadRequestError(
        f"{root / name} was not published by the stager, or is being worked on: it is not removed "
        f"(its manifest and proof of the same contents and owner should lie beside it)"
    )


def remove_staged(root: Path, one: Staged) -> int:
    """Returns the bytes that are free now."""
    folder, state = root / one.name, root / STATE / one.model
    with _as_owner(one.uid):
        _make_state(root, state, one.uid)
        with lock.held(state / "lock", one.model, wait_s=0.0):
            aside = state / f"{REMOVED}-{os.getpid()}"
            with _as_root():
                require_unused(folder)
            folder.rename(aside)
            try:
                with _as_root():  # a server may have begun to load between the look and the rename
                    require_unused(aside)
            except StagerError:
                aside.rename(folder)
                raise
            if one.finished:
                for beside in ("manifest.json", "proof.json"):
                    (root / f"{one.name}.{beside}").unlink(missing_ok=True)
            shutil.rmtree(aside)
    return one.bytes


def clear_leftovers(root: Path) -> int:
    """Of removals that were cut short; returns the bytes that are free now."""
    freed = 0
    for path in leftovers(root):
        with _as_owner(path.lstat().st_uid):
            freed += folder_bytes(path)
            shutil.rmtree(path, ignore_errors=True)
    return freed


def _make_state(root: Path, state: Path, uid: int) -> None:
    for folder in (root / STATE, state):
        folder.mkdir(mode=0o755, exist_ok=True)
        found = folder.lstat()
        if folder.is_symlink() or found.st_uid not in (uid, 0):
            raise StagerError(f"{folder} belongs to uid {found.st_uid}: remove it, then run again")


@contextlib.contextmanager
def _as_owner(uid: int) -> Iterator[None]:
    """With the rights of who staged it: in a world-writable root, links must not lead us elsewhere."""
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def _as_root() -> Iterator[None]:
    """Root again where the process is root's: only root sees what others have open."""
    before = os.geteuid()
    if before == 0 or os.getuid() != 0:
        yield
        return
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(before)
