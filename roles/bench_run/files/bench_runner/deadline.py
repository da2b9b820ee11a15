"""When a campaign starts no new cell any more: a duration from its start, an hour of the day, or a time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_DURATION = re.compile(r"(?=\d)(?:(\d+)d)?\s*(?:(\d+)h)?\s*(?:(\d+)m(?:in)?)?\s*(?:(\d+)s)?")
_HOUR = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
NEEDED = (
    "needed a duration such as 90m or 7h30m, an hour such as '06:30', a time such as "
    "2026-12-01T06:30+01:00 (in quotes: YAML takes 22:30 for a number)"
)


class DeadlineError(ValueError):
    """A deadline that can't be read; the sentence says what was needed."""


def deadline_at(text: str, started: datetime) -> datetime:
    """The time that `text` means for a run that started then. An hour is the next one by the node's clock."""
    duration = _DURATION.fullmatch(text.strip())
    if duration:
        days, hours, minutes, seconds = (int(part or 0) for part in duration.groups())
        try:
            return started + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError as exc:
            raise DeadlineError("needed one that comes; no calendar reaches so far") from exc
    hour = _HOUR.fullmatch(text.strip())
    if hour:
        here = started.astimezone()
        at = here.replace(hour=int(hour.group(1)), minute=int(hour.group(2)), second=0, microsecond=0)
        return at if at > here else at + timedelta(days=1)
    try:
        at = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError as exc:
        raise DeadlineError(NEEDED) from exc
    if at.tzinfo is None:
        raise DeadlineError(f"{text} has no zone: write {text}+01:00, or {text}Z")
    return at


def check_deadline(text: str) -> None:
    """Raise a DeadlineError where it can't be read."""
    deadline_at(text, datetime.now(timezone.utc))
