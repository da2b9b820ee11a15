"""What can go wrong, in sentences for an operator."""

from __future__ import annotations


class PveLxcError(Exception):
    """The base of all of them: `str(error)` is the message."""


class Refused(PveLxcError):  # noqa: N818 - it reads as what it is: not a fault, an answer
    """Nothing was changed, on purpose."""


class NotReady(Refused):
    """Nothing was changed, since something that an earlier step provides isn't there yet."""
