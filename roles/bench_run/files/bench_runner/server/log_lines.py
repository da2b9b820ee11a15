"""An engine's log, line by line: cleaned of colours and progress bars, and its batch lines by key.

SGLang's batch lines differ by model (dense, hybrid), parallelism and version, so nothing is read by position.
"""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# A line that is longer (2 MB of resolved arguments, a progress bar that never ended) keeps its two ends.
_END_BYTES = 4096
_BLOCK_BYTES = 256 * 1024
MAX_TAIL_BYTES = 8 * 1024 * 1024

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# [2026-11-30 18:36:06], [2026-11-30 18:36:06 TP0], [2026-11-30 18:36:06 DP1 PP0 TP3 EP3]
_PREFIX = re.compile(r"^\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,]\d+)?((?: [A-Z]{2,4}\d+)*)\] ?")
_RANK = re.compile(r"([A-Z]+)(\d+)")
# "Decode batch, …", and of older versions "Decode batch. …" and "Decode batch [40], …".
_BATCH = re.compile(r"^(Decode|Prefill) batch\b\s*(?:\[[^\]]*\])?\s*[,.:]?\s*")
_PAIR = re.compile(r"\s*([^:,]+):\s*([^,]*)(?:,|$)")
_INT = re.compile(r"[+-]?\d{1,18}")


class LogLine(Struct, frozen=True, kw_only=True):
    """`ranks` as the prefix names them: {"TP": 0}; empty where a process has no rank or names none."""

    text: str
    at: str | None = None
    ranks: dict[str, int] = {}


class Batch(Struct, frozen=True, kw_only=True):
    """One `Decode batch` or `Prefill batch` line; `values` by the line's own keys, in snake case."""

    kind: str
    values: dict[str, int | float | bool | str | None]
    at: str | None = None
    ranks: dict[str, int] = {}


def clean(raw: bytes) -> str:
    """A line as a person would see it: no colours, of a progress bar its last state, any bytes bearable."""
    if len(raw) > 2 * _END_BYTES:
        raw = raw[:_END_BYTES] + b" ... " + raw[-_END_BYTES:]
    text = _ANSI.sub("", raw.decode("utf-8", errors="replace"))
    states = [part for part in text.split("\r") if part.strip()]
    return _CONTROL.sub("", states[-1] if states else "").rstrip()


def read_line(text: str) -> LogLine:
    found = _PREFIX.match(text)
    if not found:
        return LogLine(text=text)
    ranks = {name: int(number) for name, number in _RANK.findall(found.group(2)) if len(number) <= 6}  # noqa: PLR2004 - no fleet has a million ranks
    return LogLine(text=text[found.end() :], at=found.group(1), ranks=ranks)


def read_batch(text: str) -> Batch | None:
    """None where the line is no batch line, or has none of the keys that make one."""
    line = read_line(text)
    found = _BATCH.match(line.text)
    if not found:
        return None
    values = {
        _snake(pair.group(1)): _value(pair.group(2).strip())
        for pair in _PAIR.finditer(line.text, found.end())
    }
    values.pop("", None)
    if "running_req" not in values and "new_seq" not in values:
        return None
    return Batch(kind=found.group(1).lower(), values=values, at=line.at, ranks=line.ranks)


def batches(lines: Iterable[str]) -> list[Batch]:
    return [batch for batch in map(read_batch, lines) if batch is not None]


def last_lines(path: Path, count: int, *, max_bytes: int = MAX_TAIL_BYTES) -> list[str]:
    """A file's last lines, cleaned; it's read from its end, so its size doesn't matter.

    Of a last line that is longer than `max_bytes` only its end is seen.
    """
    blocks: list[bytes] = []
    newlines = size = 0
    with path.open("rb") as file:
        place = file.seek(0, os.SEEK_END)
        while place > 0 and newlines <= count and size < max_bytes:
            step = min(_BLOCK_BYTES, place, max_bytes - size)
            place -= step
            file.seek(place)
            block = file.read(step)
            blocks.append(block)
            newlines += block.count(b"\n")
            size += len(block)
    lines = b"".join(reversed(blocks)).split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if place > 0 and len(lines) > 1:
        lines = lines[1:]  # its beginning wasn't read
    return [clean(line) for line in lines[-count:]]


def _snake(key: str) -> str:
    """`gen throughput (token/s)` -> gen_throughput_token_s, `#full token` -> full_token."""
    return re.sub(r"[^a-z0-9]+", "_", key.strip().lower()).strip("_")


def _value(text: str) -> int | float | bool | str | None:
    if text in {"True", "False"}:
        return text == "True"
    if _INT.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else None
