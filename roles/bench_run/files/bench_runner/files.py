"""Files that are whole or not there: write beside, fsync, rename, fsync the folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench_runner.errors import BusyError, FolderError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A campaign writes about 10 kB a cell; below this a full disk is near enough to stop before a file is torn.
MIN_FREE_BYTES = 64 * 1024 * 1024
_TMP_MARK = ".tmp-"


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace `path` by `data` in one step; a reader sees the old or the new file, never a part.

    `durable=False` leaves out the fsyncs, for files that are derived from others and only watched.
    """
    tmp = path.with_name(f".{path.name}{_TMP_MARK}{os.getpid()}")
    try:
        handle = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        tmp.replace(path)
    except OSError:
        tmp.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def remove_leftovers(folder: Path) -> list[str]:
    """Drop half-written files of a runner that was killed; none was ever visible under its own name."""
    leftovers = sorted(folder.glob(f".*{_TMP_MARK}*"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return [leftover.name for leftover in leftovers]


def require_usable(folder: Path, *, min_free_bytes: int = MIN_FREE_BYTES) -> None:
    """Refuse a folder that results can't be kept in, before anything has run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe{_TMP_MARK}{os.getpid()}"
        write_whole(probe, b"probe\n")
        probe.unlink()
    except OSError as exc:
        raise FolderError(
            f"results folder {folder} is not writable for {_user()}: {exc.strerror or exc}; "
            f"give it to that user (chown) or name another folder (bench_run_dir)"
        ) from exc
    free = shutil.disk_usage(folder).free
    if free < min_free_bytes:
        raise FolderError(
            f"results folder {folder} has {free / 2**20:.0f} MiB free, a campaign needs at least "
            f"{min_free_bytes / 2**20:.0f} MiB; make room or name another folder (bench_run_dir)"
        )


@contextmanager
def only_runner(lock: Path) -> Iterator[None]:
    """Hold `lock` for the whole run: two runners on one node would falsify each other's times."""
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as exc:
        raise FolderError(
            f"results folder {lock.parent} is not writable for {_user()}: {exc.strerror}; "
            f"give it to that user (chown) or name another folder (bench_run_dir)"
        ) from exc
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "unknown"
            raise BusyError(f"another runner ({holder}) holds {lock}; wait for it or stop its unit") from exc
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"pid {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _user() -> str:
    return f"uid {os.geteuid()}"
