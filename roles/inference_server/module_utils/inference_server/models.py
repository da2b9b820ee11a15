"""Whether a staged model is there, whole enough for its engine, and readable by the engine's user."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .build import VERSION_S, Account, run_as

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Reads a byte of each file: a mode that allows it says nothing of a folder above that doesn't.
READ_SCRIPT = "import sys\nfor path in sys.argv[1:]:\n    open(path, 'rb').read(1)"
SPLIT = re.compile(r"-(\d{5})-of-\d{5}\.gguf$")


def pick_file(names: Sequence[str]) -> str | None:
    """The one GGUF file to name to an engine: the only one, or the first part of a split model."""
    files = sorted(name for name in names if name.endswith(".gguf"))
    first = [name for name in files if (part := SPLIT.search(name)) and part.group(1) == "00001"]
    if len(files) == 1:
        return files[0]
    whole = [name for name in files if not SPLIT.search(name)]
    return first[0] if len(first) == 1 and not whole else None


def describe_model(model: Mapping[str, Any], account: Account) -> dict[str, Any]:
    """The file to name, and the problem, of one model.

    One whose turn in memory comes later (`files` has their names) is judged by what will be there.
    """
    path = Path(model["path"])
    if model.get("files") is not None:
        return _describe_deferred(model, path)
    nothing = {"path": str(path), "file": None, "problem": None}
    try:
        names = sorted(entry.name for entry in os.scandir(path) if entry.is_file())
    except FileNotFoundError:
        return {**nothing, "problem": f"is not at {path}: stage it first (playbooks/stage.yml)"}
    except OSError as exc:
        return {**nothing, "problem": f"at {path} cannot be listed: {exc.strerror}"}
    if problem := _unfit(model, names):
        return {**nothing, "problem": f"at {path} {problem}"}
    file = pick_file(names)
    wanted = [
        str(path / name) for name in names if any(fnmatch.fnmatch(name, need) for need in model["needs"])
    ]
    ran = run_as(account, [sys.executable, "-I", "-c", READ_SCRIPT, *wanted], VERSION_S)
    if ran.status != 0:
        return {**nothing, "problem": f"at {path} cannot be read by the user {account.name}: {ran.last_line}"}
    return {**nothing, "file": file if model["as_file"] else None}


def _describe_deferred(model: Mapping[str, Any], path: Path) -> dict[str, Any]:
    names = sorted(name for name in model["files"] if "/" not in name)
    problem = _unfit(model, names)
    return {
        "path": str(path),
        "file": pick_file(names) if model["as_file"] and not problem else None,
        "problem": f"that waits for its turn in {path.parent} {problem}" if problem else None,
    }


def _unfit(model: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """What the names of a model's files say against it."""
    lacking = [pattern for pattern in model["needs"] if not fnmatch.filter(names, pattern)]
    if lacking:
        found = ", ".join(names[:5]) or "nothing"
        return f"has no {' and no '.join(lacking)} (found: {found}): stage it again (playbooks/stage.yml)"
    if model["as_file"] and pick_file(names) is None:
        return "has several GGUF files, and no one of them is the first part"
    return None
