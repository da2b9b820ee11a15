"""The sha256 of a large file that stays where it is: with progress, and without a flooded page cache."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from model_stager.errors import StoppedError

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from model_stager.tally import Tally

BLOCK = 1 << 20
STEP = 64 << 20


def hash_in_steps(path: Path, tally: Tally, stop: threading.Event, *, drop: bool) -> str:
    sha256, offset, dropped = hashlib.sha256(), 0, 0
    view = memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as stream:
        descriptor = stream.fileno()
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while got := stream.readinto(view):
            sha256.update(view[:got])
            tally.land(got)
            offset += got
            if stop.is_set():
                raise StoppedError("stopped")
            if drop and offset - dropped >= STEP:
                os.posix_fadvise(descriptor, dropped, offset - dropped, os.POSIX_FADV_DONTNEED)
                dropped = offset
        if drop:
            os.posix_fadvise(descriptor, dropped, 0, os.POSIX_FADV_DONTNEED)
    return sha256.hexdigest()
