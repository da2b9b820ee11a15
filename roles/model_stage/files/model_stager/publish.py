"""Make a finished folder appear under its name in one step, also in place of an older one."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

AT_FDCWD = -100
NOREPLACE, EXCHANGE = 1, 2


def _renameat2(old: Path, new: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    rc = libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), ctypes.c_uint(flags))
    if rc:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(new))


def publish(partial: Path, name: Path) -> None:
    """Rename the folder to its name; what was there before is exchanged in the same step and then removed."""
    if not os.path.lexists(name):
        _renameat2(partial, name, NOREPLACE)
        return
    try:
        _renameat2(partial, name, EXCHANGE)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        # This filesystem can't exchange: for an instant there is no model, but never half of one.
        aside = partial.with_name(f"{partial.name}.old")
        name.rename(aside)
        partial.rename(name)
        partial = aside
    remove(partial)


def remove(path: Path) -> None:
    """Remove a folder, or whatever else has the name."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
