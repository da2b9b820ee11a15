"""One file on a server, read by ranges, and held against everything the server says about it."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Callable, Protocol, TypeVar

from model_stager.errors import RangeIgnoredError, SourceFlakyError, SourceUnusableError
from model_stager.origins import SMALL
from model_stager.urls import visible

if TYPE_CHECKING:
    from model_stager.answers import Answer
    from model_stager.http_client import HttpClient
    from model_stager.manifest import FileEntry
    from model_stager.origins import Reader
    from model_stager.secret import Token

CONTENT_RANGE = re.compile(r"^bytes (\d+)-(\d+)/(\d+|\*)$")
EXPIRED = (400, 401, 403, 410)  # what object stores answer to a signature whose time is over
WHOLE, PART, UNSATISFIABLE = 200, 206, 416
TRIES = 4
KEPT = 1 << 20  # a config or an index is looked at several times

T = TypeVar("T")


class Address(Protocol):
    """Where the file is now."""

    token: Token | None

    @property
    def shown(self) -> str:
        """For messages: the address that was asked for, not where it led to."""

    def current(self) -> str: ...

    def renew(self, used: str) -> bool:
        """Find a new location in place of the one that was refused; False when there is no other."""


class FixedAddress:
    """A URL that does not change."""

    token: Token | None = None

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def shown(self) -> str:
        return visible(self._url)

    def current(self) -> str:
        return self._url

    def renew(self, used: str) -> bool:  # noqa: ARG002 - as Address
        return False


class RemoteFile:
    """An Origin. Messages continue the file's name, as those of a reader do."""

    path = None

    def __init__(
        self,
        client: HttpClient,
        address: Address,
        entry: FileEntry,
        patience_s: float,
        *,
        ranges: bool,
    ) -> None:
        self.ranges = ranges
        self.name = entry.name
        self._client = client
        self._address = address
        self._size = entry.size_bytes
        self._patience_s = patience_s
        self._kept: bytes | None = None

    @property
    def where(self) -> str:
        return self._address.shown

    def size_bytes(self) -> int | None:
        return self._size

    def content(self, limit: int = SMALL) -> bytes:
        if self._kept is not None:
            return self._kept
        try:
            content = patiently(lambda: self._content(limit), self._patience_s)
        except SourceFlakyError as exc:
            raise SourceFlakyError(f"{self.name} {exc}", exc.retry_after_s) from exc
        except SourceUnusableError as exc:
            raise SourceUnusableError(f"{self.name} {exc}") from exc
        if len(content) <= KEPT:
            self._kept = content
        return content

    def _content(self, limit: int) -> bytes:
        answer = self._ask({})
        try:
            self._require_file(answer)
            content = answer.read(limit)
        finally:
            answer.close()
        if self._size is not None and len(content) != self._size:
            raise SourceUnusableError(self._wrong_size(len(content), answer.where))
        return content

    def open(self, start: int, end: int) -> Reader:
        if start >= end:
            return RemoteReader(None, start, end)
        if start > 0 and not self.ranges:
            raise RangeIgnoredError(f"can be had from {self.where} only from its first byte on")
        headers = {"Range": f"bytes={start}-{end - 1}"} if self.ranges else {}
        answer = self._ask(headers)
        try:
            self._require_file(answer)
            if answer.status == PART:
                self._require_part(answer, start, end)
            else:
                self._require_whole(answer, start, end)
        except BaseException:
            answer.close()
            raise
        return RemoteReader(answer, start, end)

    def _ask(self, headers: dict[str, str]) -> Answer:
        """A location whose signature has expired is looked up again, once."""
        try:
            url = self._address.current()
            answer = self._client.ask(url, headers, token=self._address.token)
            if answer.status in EXPIRED and self._address.renew(url):
                answer.skip()
                answer = self._client.ask(self._address.current(), headers, token=self._address.token)
            if answer.status == UNSATISFIABLE:
                total = (answer.headers.get("Content-Range") or "").rpartition("/")[2]
                found = f": it has {total} bytes there" if total.isdigit() else ""
                answer.skip()
                raise SourceUnusableError(f"{answer.where} has no such bytes{found}")  # noqa: TRY301 - as below
            answer.require_success()
        except SourceFlakyError as exc:
            raise SourceFlakyError(f"can't be had: {exc}", exc.retry_after_s) from exc
        except SourceUnusableError as exc:
            raise SourceUnusableError(f"can't be had: {exc}") from exc
        return answer

    def _require_file(self, answer: Answer) -> None:
        """The bytes as they are, and not a page that speaks about them."""
        require_identity(answer)
        kind = (answer.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        if kind == "text/html" and not self.name.endswith((".html", ".htm")):
            raise SourceUnusableError(
                f"can't be had: {answer.where} gives an HTML page in its place, likely a login or an error"
            )
        if answer.status not in (WHOLE, PART):
            raise SourceUnusableError(f"can't be had: {answer.where} answers {answer.status} in its place")

    def _require_part(self, answer: Answer, start: int, end: int) -> None:
        given = answer.headers.get("Content-Range") or ""
        found = CONTENT_RANGE.match(given)
        if not found or int(found[1]) != start or int(found[2]) != end - 1:
            asked = f"was asked for bytes {start}-{end - 1} and gives {given or 'others'}"
            raise SourceUnusableError(f"can't be had: {answer.where} {asked}")
        if found[3] != "*" and self._size is not None and int(found[3]) != self._size:
            raise SourceUnusableError(self._wrong_size(int(found[3]), answer.where))
        if answer.length is not None and answer.length != end - start:
            raise SourceUnusableError(
                f"can't be had: {answer.where} announces {answer.length} bytes for a part of {end - start}"
            )

    def _require_whole(self, answer: Answer, start: int, end: int) -> None:
        """An answer with the whole file serves who wants all of it, or its first bytes."""
        if answer.length is not None and self._size is not None and answer.length != self._size:
            raise SourceUnusableError(self._wrong_size(answer.length, answer.where))
        if self.ranges:
            self.ranges = False
            if start > 0 or end != self._size:
                raise RangeIgnoredError(f"can be had from {answer.where} only as a whole (it ignores Range)")

    def _wrong_size(self, found: int, where: str) -> str:
        return f"has {found} bytes at {where}, the manifest says {self._size}"


class RemoteReader:
    """The bytes of one answer; a body that is shorter or longer than it should be is named."""

    def __init__(self, answer: Answer | None, start: int, end: int) -> None:
        self._answer = answer
        self._offset, self._end = start, end
        self._closed = threading.Event()

    def readinto(self, view: memoryview) -> int:
        answer, wanted = self._answer, min(len(view), self._end - self._offset)
        if answer is None or wanted == 0:
            return 0
        try:
            got = answer.readinto(view[:wanted])
        except SourceFlakyError as exc:
            raise SourceFlakyError(f"broke off at byte {self._offset}: {exc}", exc.retry_after_s) from exc
        except SourceUnusableError as exc:
            raise SourceUnusableError(f"broke off at byte {self._offset}: {exc}") from exc
        if got == 0:
            kind = SourceUnusableError if answer.ends_itself else SourceFlakyError
            raise kind(f"ends at byte {self._offset} at {answer.where}, it should have {self._end}")
        self._offset += got
        if self._offset == self._end and answer.length is None:
            self._require_end(answer)
        return got

    def _require_end(self, answer: Answer) -> None:
        """A body without a length could go on for ever."""
        if answer.readinto(memoryview(bytearray(1))):
            raise SourceUnusableError(
                f"goes on after byte {self._end} at {answer.where}, where it should end"
            )

    def forget(self, start: int, end: int) -> None:
        """A network keeps nothing."""

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()


def require_identity(answer: Answer) -> None:
    """Compressed on the way, neither ranges nor sizes mean the file's own."""
    encoding = (answer.headers.get("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise SourceUnusableError(
            f"can't be had: {answer.where} compresses it ({encoding}), though it was asked not to: switch "
            "that off there"
        )


def patiently(call: Callable[[], T], patience_s: float) -> T:
    """Ask a busy server again, as often and as late as it says, while that is soon enough."""
    until, wait = time.monotonic() + patience_s, 0.5
    for left in range(TRIES, 0, -1):
        try:
            return call()
        except SourceFlakyError as exc:  # noqa: PERF203 - a few tries
            pause = wait if exc.retry_after_s is None else exc.retry_after_s
            if left == 1 or time.monotonic() + pause > until:
                raise
            time.sleep(pause)
            wait *= 2
    raise AssertionError  # the last try returns or raises
