"""One stager a model: a lock that the kernel drops when its owner dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING

from model_stager.errors import BusyError, StagerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POLL_S = 0.2


@contextlib.contextmanager
def held(path: Path, name: str, wait_s: float) -> Iterator[None]:
    """Hold the lock; wait for another owner at most so long. The file stays: removing it would race."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                    raise BusyError(f"{name}: another stager (pid {owner}) is at work on it") from None
                time.sleep(POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def folder_held(folder: Path, name: str) -> Iterator[None]:
    """Hold what is being filled as well: the file of the lock can be removed under its owner.

    Raises at the end when the folder under that name is not the one that was filled.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{name}: another stager is at work in {folder}") from None
        yield
        if not (os.path.lexists(folder) and os.path.samestat(os.fstat(descriptor), os.lstat(folder))):
            raise StagerError(f"{name}: {folder} was removed while it was filled: run again")
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a stager is at work now; reads only."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
