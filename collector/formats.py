"""How figures are shown. They are rounded here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.records import Workload


def figure(value: float) -> str:
    """About four digits: 0.8123, 26.31, 182.9, 1554."""
    magnitude = abs(value)
    if magnitude >= 1000:  # noqa: PLR2004 - from here on the decimals say nothing
        return f"{value:,.0f}"
    if magnitude >= 100:  # noqa: PLR2004 - four digits in all
        return f"{value:.1f}"
    if magnitude >= 1:
        return f"{value:.2f}"
    return f"{value:.3f}"


def speedup(ratio: float) -> str:
    return f"{ratio:.2f}\N{MULTIPLICATION SIGN}"


def seconds(value: float) -> str:
    """1.4 s, 75 s as 1 min 15 s, hours as 2 h 05 min."""
    if value < 60:  # noqa: PLR2004 - below a minute
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:  # noqa: PLR2004 - below an hour
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def size(count: int) -> str:
    """Bytes as an operator reads them."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":  # noqa: PLR2004 - binary units
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def one_line(text: str, limit: int = 200) -> str:
    """Text of others on one line, without control characters, not longer than the limit."""
    clean = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def instant(at: str) -> str:
    """2026-05-14T09:12:03.123Z as 2026-05-14 09:12:03 UTC."""
    return f"{at[:10]} {at[11:19]} UTC"


def period(start: str, end: str) -> str:
    """2026-05-14 09:12:03 to 10:05:00 UTC; the date again only where it is another one."""
    until = instant(end) if end[:10] != start[:10] else f"{end[11:19]} UTC"
    return f"{start[:10]} {start[11:19]} to {until}"


POINT_WORDS = {
    "code": "output tokens",
    "context": "prompt tokens",
    "concurrency": "clients",
    "rate": "requests/s",
    "replay": "% speed",
    "agentic": "turns",
}
WORKLOAD_TITLES = {
    "code": "Code",
    "context": "Context",
    "concurrency": "Concurrency",
    "rate": "Open loop",
    "replay": "Replay",
    "agentic": "Agentic",
}


def point_title(workload: Workload, value: int) -> str:
    """1,024 output tokens; 1 client."""
    words = POINT_WORDS[workload]
    one = "request/s" if workload == "rate" else words.removesuffix("s")
    if workload == "replay":
        return f"{value:,} {words}"
    return f"{value:,} {one if value == 1 else words}"
