"""The running hash of a file that is being copied: in the copying thread, or in one behind it."""

from __future__ import annotations

import hashlib
import queue
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 1 << 20
BEHIND = 8  # blocks that may wait for the hash; the memory of a copy is bounded by them


class RunningHash(Protocol):
    """A hash over blocks, in the order in which they were given."""

    def buffer(self) -> memoryview:
        """Where to read the next block into."""

    def update(self, block: memoryview) -> None:
        """Hash this part of the last buffer, which is the hash's own from now on."""

    def then(self, call: Callable[[str], None]) -> None:
        """Call with the sum over all that was given so far, when it is known."""

    def hexdigest(self) -> str: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


class HashBeside:
    """In the copying thread: right where every core has a file of its own."""

    def __init__(self, hasher: hashlib._Hash) -> None:
        self._hasher = hasher
        self._buffer = memoryview(bytearray(BLOCK))

    def buffer(self) -> memoryview:
        return self._buffer

    def update(self, block: memoryview) -> None:
        self._hasher.update(block)

    def then(self, call: Callable[[str], None]) -> None:
        call(self._hasher.hexdigest())

    def hexdigest(self) -> str:
        return self._hasher.hexdigest()

    def reset(self) -> None:
        self._hasher = hashlib.sha256()

    def close(self) -> None:
        """Nothing is left to end."""


class HashBehind:
    """In a thread of its own: one large file then keeps two cores busy."""

    def __init__(self, hasher: hashlib._Hash) -> None:
        self._hasher = hasher
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        for _ in range(BEHIND):
            self._free.put(memoryview(bytearray(BLOCK)))
        self._taken: memoryview | None = None
        self._todo: queue.SimpleQueue[tuple[memoryview, memoryview] | Callable[[str], None] | None]
        self._todo = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="hash", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (item := self._todo.get()) is not None:
            if callable(item):
                item(self._hasher.hexdigest())
            else:
                buffer, block = item
                self._hasher.update(block)
                self._free.put(buffer)

    def buffer(self) -> memoryview:
        if self._taken is None:
            self._taken = self._free.get()
        return self._taken

    def update(self, block: memoryview) -> None:
        if self._taken is not None:
            self._todo.put((self._taken, block))
            self._taken = None

    def then(self, call: Callable[[str], None]) -> None:
        self._todo.put(call)

    def hexdigest(self) -> str:
        answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.then(answer.put)
        return answer.get()

    def reset(self) -> None:
        self.hexdigest()  # what waits belongs to the old sum
        self._hasher = hashlib.sha256()

    def close(self) -> None:
        self._todo.put(None)
        self._thread.join()
