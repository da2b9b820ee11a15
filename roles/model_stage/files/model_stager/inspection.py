"""Where a file is kept that came whole over the network and is not what it should be, for a look at it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from model_stager.room import measure_room

if TYPE_CHECKING:
    from pathlib import Path


class BadFiles:
    """Takes only room that neither the model nor the engine will need."""

    def __init__(self, folder: Path, root: Path, reserve_bytes: int) -> None:
        self.folder = folder
        self._root = root
        self._reserve_bytes = reserve_bytes

    def clear(self) -> None:
        """Those of an earlier attempt."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def place(self, name: str, still_needed_bytes: int) -> Path | None:
        """Where to put it; None when there is no room for a second one."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        room = measure_room(self._root)
        limits = [room.free_bytes]
        if room.in_memory:
            memory = (room.memory_available, room.cgroup_free)
            limits += [free - self._reserve_bytes for free in memory if free is not None]
        return path if min(limits) >= still_needed_bytes else None
