"""Ask a source that may hang: a mount whose server is gone says neither yes nor no, not even to a signal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable, Generic, TypeVar

from model_stager.errors import SourceUnusableError
from model_stager.text import seconds_text

if TYPE_CHECKING:
    from model_stager.manifest import FileEntry, Manifest
    from model_stager.origins import Origin
    from model_stager.sources import Source

T = TypeVar("T")


class Question(threading.Thread, Generic[T]):
    """Asked in a thread that can be left behind."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(name="question", daemon=True)
        self._call = call
        self._fault: BaseException | None = None

    def run(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as exc:  # noqa: BLE001 - raised again by who asked
            self._fault = exc

    def answer(self) -> T:
        """What was answered, once the thread has ended."""
        if self._fault is not None:
            raise self._fault
        return self._answer


class Answering:
    """A source of local files that is given so long for each answer; once silent, it is not asked again."""

    def __init__(self, source: Source, limit_s: float) -> None:
        self.label = source.label
        self._source = source
        self._limit_s = limit_s
        self._silent = False

    def agrees(self, manifest: Manifest) -> bool | None:
        try:
            return self._ask(lambda: self._source.agrees(manifest))
        except SourceUnusableError:
            return None

    def manifest(self) -> Manifest:
        return self._ask(self._source.manifest)

    def locate(self, entry: FileEntry) -> Origin:
        return self._ask(lambda: self._source.locate(entry))

    def _ask(self, call: Callable[[], T]) -> T:
        if not self._silent:
            question = Question(call)
            question.start()
            question.join(self._limit_s)
            if not question.is_alive():
                return question.answer()
            self._silent = True
        raise SourceUnusableError(f"no answer for {seconds_text(self._limit_s)}: is its mount gone?")
