"""Read what the stager writes, and put it into an operator's words."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """An empty dict when there is nothing to read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def state_folder(root: str, model: str) -> Path:
    return Path(root, ".model-stage", model)


def progress(root: str, model: str) -> dict[str, Any]:
    return read_json(state_folder(root, model) / "progress.json")


def result(root: str, model: str) -> dict[str, Any]:
    return read_json(state_folder(root, model) / "result.json")


def write_new(folder: Path, name: str, text: str) -> Path:
    """Root writes into a folder of the stager's user: never through a link that lies there."""
    descriptor, scratch = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        os.fchmod(descriptor, 0o644)
    Path(scratch).replace(folder / name)
    return folder / name


def was_launched(root: str, model: str, run: str) -> bool:
    """Whether this run has been started: an `until` loop calls again with what the first call knew."""
    return read_json(state_folder(root, model) / "launched.json").get("run") == run


def lock_is_held(root: str, model: str) -> bool:
    """Whether a stager is alive: the kernel drops its lock when it dies."""
    try:
        descriptor = os.open(state_folder(root, model) / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def progress_line(model: str, now: dict[str, Any]) -> str:
    """`qwen: 21.0 of 52.0 GB, 1.15 GB/s, 27 s left, from the HF cache (model-3.safetensors)`."""
    if not now:
        return f"{model}: starting"
    done, total = now["bytes"] / 1e9, now["total_bytes"] / 1e9
    parts = [f"{model}: {done:.1f} of {total:.1f} GB" + (" checked" if now["state"] == "checking" else "")]
    if now["rate_bytes_s"]:
        parts.append(f"{now['rate_bytes_s'] / 1e9:.2f} GB/s")
    if now["seconds_left"] is not None:
        parts.append(f"{now['seconds_left']:.0f} s left")
    if now["source"] and now["state"] == "copying":
        parts.append(f"from {now['source']} ({now['file']})")
    return ", ".join(parts)


def record(answer: dict[str, Any]) -> dict[str, Any]:
    """What recovery.json keeps of a model: of a finished run, or of a copy that was right already."""
    keys = ("model", "path", "place", "action", "digest", "files", "total_bytes", "memory_bytes")
    more = ("copied_bytes", "resumed_bytes", "seconds", "sources", "why", "summary", "notes")
    return {key: answer[key] for key in (*keys, *more) if key in answer}


def renew(proof: Path) -> None:
    """A model was asked for: it is the most recently used one now. Root follows no link that lies there."""
    with contextlib.suppress(OSError):  # an older stamp only lets it go earlier
        os.utime(proof, follow_symlinks=False)
