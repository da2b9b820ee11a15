"""Reading and replacing a container's file on pmxcfs (`/etc/pve`), under Proxmox's own lock.

What pmxcfs allows decides the way: a temporary file in the same folder and a rename over the target. No
chmod, no chown, no link, no rename from elsewhere; and a reader can meet ENOENT for an instant.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from hashlib import sha1
from typing import TYPE_CHECKING

from .errors import PveLxcError, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_LIMIT_S = 10.0  # as long as Proxmox itself waits for this lock
_READ_LIMIT_S = 1.0
_POLL_S = 0.05
_MODE = 0o640
_NAME = re.compile(r"(\d+)\.conf", re.ASCII)


def digest(raw: bytes) -> str:
    """Proxmox's digest of a configuration."""
    return sha1(raw).hexdigest()  # noqa: S324 - Proxmox's choice, not a secret


class ContainerFile:
    """`/etc/pve/lxc/<vmid>.conf`, and the lock file that Proxmox takes while it writes it."""

    def __init__(self, path: Path, lock_dir: Path) -> None:
        match = _NAME.fullmatch(path.name)
        if not match:
            raise Refused(f"{path}: a container's file is named <vmid>.conf")
        self.path = path
        self.vmid = match.group(1)
        self.lock_path = lock_dir / f"pve-config-{self.vmid}.lock"
        # Fixed, so that a run that was killed leaves at most one of them, which the next run writes over.
        self._temporary = path.with_name(f"{path.name}.recover-and-bench")

    @contextlib.contextmanager
    def locked(self, limit_s: float = LOCK_LIMIT_S) -> Iterator[None]:
        """Hold Proxmox's lock on this file. Never call `pct` meanwhile: it would wait for the same lock."""
        try:
            self.lock_path.parent.mkdir(parents=True, exist_ok=True)
            handle = self.lock_path.open("ab")
        except OSError as exc:
            raise PveLxcError(
                f"{self.lock_path} can't be opened ({exc.strerror}), so {self.path} was left as it is: "
                "this needs root on the host (ansible_become: true)"
            ) from exc
        with handle:
            deadline = time.monotonic() + limit_s
            while not _try_lock(handle.fileno()):
                if time.monotonic() > deadline:
                    raise PveLxcError(
                        f"{self.lock_path} was held by another process for {limit_s:g} s, so "
                        f"{self.path} was left as it is. "
                        f"Wait until that operation on container {self.vmid} ends, then run again"
                    )
                time.sleep(_POLL_S)
            yield

    def read(self) -> bytes:
        deadline = time.monotonic() + _READ_LIMIT_S
        while True:
            try:
                return self.path.read_bytes()
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise Refused(
                        f"{self.path} does not exist: is {self.vmid} the id of a container of this host?"
                    ) from None
            except OSError as exc:
                raise PveLxcError(f"{self.path} can't be read: {exc.strerror}") from exc
            time.sleep(_POLL_S)

    def replace(self, before: bytes, after: bytes) -> None:
        """Write the whole file at once, if it still is what the change was worked out from."""
        try:
            self._write_temporary(after)
            self.require_unchanged(digest(before))
            self._temporary.rename(self.path)
        except OSError as exc:
            raise PveLxcError(f"{self.path} can't be written ({exc.strerror}) and is as it was") from exc
        finally:
            with contextlib.suppress(OSError):  # only after a failure is there one left
                self._temporary.unlink()
        if self.read() != after:
            raise PveLxcError(
                f"{self.path} was replaced, but reads differently: another writer came just then"
            )

    def require_unchanged(self, expected: str) -> None:
        found = digest(self.read())
        if found != expected:
            raise Refused(
                f"{self.path} was changed meanwhile by something else (digest {found[:12]}, expected "
                f"{expected[:12]}); nothing was written. Run again"
            )

    def _write_temporary(self, content: bytes) -> None:
        handle = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(handle, view) :]
            _sync(handle)
        finally:
            os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOSYS):  # a FUSE filesystem need not know it
            raise
