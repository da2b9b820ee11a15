"""Numbers and lists as an operator reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def bytes_text(count: float) -> str:
    """Decimal units, as disks and networks are sold: `3.3 MB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def seconds_text(seconds: float) -> str:
    if seconds < 1e-2:  # noqa: PLR2004 - below this, milliseconds read better
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1e3:.0f} ms"  # noqa: PLR2004 - as above


def count_text(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def some_text(items: Sequence[str], most: int = 3) -> str:
    """The first few, and how many more there are."""
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown
