"""Every way in which staging fails, each with the exit code by which a caller can tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class StagerError(Exception):
    """Base of all; the message is one sentence for the operator."""

    exit_code = 1
    code = "failed"


class BadRequestError(StagerError):
    """What was asked for makes no sense: a wrong name, path, revision or manifest."""

    exit_code = 2
    code = "bad_request"


class NoSourceError(StagerError):
    """No source has the model; the message lists the reason of each."""

    exit_code = 3
    code = "no_source"


class NoRoomError(StagerError):
    """The model does not fit, or room ran out midway."""

    exit_code = 4
    code = "no_room"

    def __init__(
        self, message: str, *, limit: str = "", needed: int = 0, free: int = 0, removable: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.limit = limit  # filesystem, inodes, memory, cgroup; empty when it showed only midway
        self.needed = needed
        self.free = free
        self.removable = tuple(removable)

    def data(self) -> dict[str, Any]:
        """For a program that decides what to do about it."""
        return {
            "limit": self.limit,
            "needed": self.needed,
            "free": self.free,
            "removable": list(self.removable),
        }


class InUseError(StagerError):
    """What was to be removed is being read; the message names the process."""

    exit_code = 5
    code = "in_use"


class NotIntactError(StagerError):
    """The published copy is not what its manifest says."""

    exit_code = 6
    code = "not_intact"


class BusyError(StagerError):
    """Another stager holds the lock of this model."""

    exit_code = 75
    code = "busy"


class StoppedError(StagerError):
    """Stopped by a signal; verified parts stay for the next run."""

    exit_code = 143
    code = "stopped"


class SourceUnusableError(Exception):
    """This source can't give this file; the ladder goes on to the next, and keeps the reason."""


class SourceFlakyError(SourceUnusableError):
    """Worth asking again from where it stopped: a dropped connection, a busy server, a rate limit."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RangeIgnoredError(SourceUnusableError):
    """The server sends the whole file whatever is asked for: one stream from its first byte is left."""
