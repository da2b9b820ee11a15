"""Whether a folder of the node can keep results, found out by writing: modes say nothing of a full disk."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# The runner's own limit (files/bench_runner/files.py); a test keeps them equal.
MIN_FREE_BYTES = 64 * 1024 * 1024
IN_MEMORY = ("tmpfs", "ramfs")
MIB = 2**20
OTHERWISE = "name another folder (bench_run_dir)"


def nearest(path: Path) -> Path:
    """The folder itself, or the one in which it would be made."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def filesystem_of(path: Path, mountinfo: str) -> tuple[str, str]:
    """Mount point and kind of the filesystem that holds a path: of the longest mount point the last mount."""
    best, kind = "", "unknown"
    real = f"{path.resolve()}/"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        # Blanks and the like are written in octal.
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), before.split(" ")[4])
        mount = point.rstrip("/") + "/"
        if real.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, after.split(" ")[0]
    return best.rstrip("/") or "/", kind


def problem(path: Path, mountinfo: str, *, min_free_bytes: int = MIN_FREE_BYTES) -> str | None:
    """The sentence that says why results can't be kept at `path`, or None."""
    place = nearest(path)
    mount, kind = filesystem_of(place, mountinfo)
    if kind in IN_MEMORY:
        return f"the results folder {path} is on the {kind} {mount}, which a reboot empties; {OTHERWISE}"
    try:
        with tempfile.NamedTemporaryFile(prefix=".write-test-", dir=place) as file:
            file.write(b"probe\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        refused = f"{place} takes no file ({exc.strerror or exc})"
        return f"the results folder {path} can't be written: {refused}; free it, or {OTHERWISE}"
    free = free_bytes(place)
    if free < min_free_bytes:
        return (
            f"the results folder {path} has {free / MIB:.0f} MiB free, a campaign needs at least "
            f"{min_free_bytes / MIB:.0f} MiB; make room or {OTHERWISE}"
        )
    return None


def free_bytes(place: Path) -> int:
    return shutil.disk_usage(place).free
