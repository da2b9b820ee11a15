"""Both locks of a container: a flock while its file is read and written, and the `lock:` key in it."""

from __future__ import annotations

import fcntl
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .console import complain
from .errors import PctError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conf import Section

FOLDER = Path("/run/lock/lxc")
TIMEOUT_S = 10.0


@contextmanager
def config_lock(vmid: int, timeout_s: float = TIMEOUT_S) -> Iterator[None]:
    """Hold /run/lock/lxc/pve-config-<vmid>.lock, or fail with Proxmox's words after ten seconds."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"pve-config-{vmid}.lock"
    with path.open("a") as lock:
        deadline = time.monotonic() + timeout_s
        waiting = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    waiting = True
                    complain("trying to acquire lock...", end="")
                if time.monotonic() > deadline:
                    raise PctError(f"can't lock file '{path}' - got timeout", 4) from None
                time.sleep(0.1)
        if waiting:
            complain(" OK")
        yield


def check_lock(section: Section) -> None:
    lock = section.keys.get("lock")
    if lock:
        raise PctError(f"CT is locked ({lock})")
