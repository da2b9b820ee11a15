"""Ranges of versions, as `>= 0.5.20, < 0.6`, against what a build or a driver calls itself."""

from __future__ import annotations

import re

_PART = re.compile(r"\s*(<=|>=|==|!=|<|>)?\s*([0-9][0-9A-Za-z.+-]*)\s*$")
_VERSION = re.compile(r"\d+(?:\.\d+)+|\d+")


class RangeError(ValueError):
    """A range that can't be read."""


def numbers(text: str) -> tuple[int, ...] | None:
    """The first version in a text such as `sglang 0.5.23 (abc1234)`; None where there is none."""
    match = _VERSION.search(text)
    return tuple(int(part) for part in match.group().split(".")) if match else None


def check_range(wanted: str) -> None:
    """Raise a RangeError where the range can't be read."""
    _parts(wanted)


def in_range(version: str | None, wanted: str) -> bool:
    """Whether all parts of the range hold; a version that nobody knows is in no range."""
    found = numbers(version) if version else None
    if found is None:
        return False
    return all(_holds(found, mark, limit) for mark, limit in _parts(wanted))


def _parts(wanted: str) -> list[tuple[str, tuple[int, ...]]]:
    parts = []
    for part in wanted.split(","):
        match = _PART.match(part)
        limit = numbers(match.group(2)) if match else None
        if match is None or limit is None:
            raise RangeError(
                f"the range {wanted!r} can't be read at {part.strip()!r}: needed e.g. >= 0.5, < 0.6"
            )
        parts.append((match.group(1) or "==", limit))
    return parts


def _holds(found: tuple[int, ...], mark: str, limit: tuple[int, ...]) -> bool:
    width = max(len(found), len(limit))
    left, right = (each + (0,) * (width - len(each)) for each in (found, limit))
    if mark in {"==", "!="}:
        # 0.5 names every 0.5.x
        return (found[: len(limit)] == limit) == (mark == "==")
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[mark]
