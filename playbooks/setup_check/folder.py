"""Whether a folder can be written, found out by writing: modes say nothing of a full or read-only disk."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def folder_problem(path: Path, *, create: bool) -> str | None:
    """The sentence that says why results can't be kept at `path`, or None.

    With `create` false (check mode) the folder is not made: the nearest one that exists is tried.
    """
    place = path
    if create:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            return _sentence(path, exc)
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.NamedTemporaryFile(prefix=".write-test-", dir=place):
            return None
    except OSError as exc:
        return _sentence(path, exc)


def _sentence(path: Path, exc: OSError) -> str:
    return (
        f"the results folder {path} can't be written: {exc.strerror or exc}. Results are never measured"
        " without a place to keep them: free it, or set results_dir to another folder"
    )
