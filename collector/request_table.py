"""The requests of the cells that speak, one row each."""

from __future__ import annotations

import csv
import filecmp
import io
import os
from typing import TYPE_CHECKING

import msgspec
import zstandard

from collector.door import UnreadableError, companion_path
from collector.records import RequestRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from collector.layout import Layout
    from collector.merge import Merged, Row

CELL_COLUMNS = ("campaign", "environment", "node", "cell", "configuration", "workload", "point", "repeat")
REQUEST_COLUMNS = RequestRecord.__struct_fields__
# A record has at most 400 bytes; more than this of one cell is a file that was made to fill the memory.
MAX_UNPACKED_BYTES = 256 * 1024 * 1024


def write_requests(layout: Layout, merged: Merged) -> tuple[Path, int, list[str]]:
    """Write merged/requests.csv; returns its path, its rows, and what could not be read.

    Line by line, since a campaign can have more requests than memory is good for.
    """
    target = layout.merged / "requests.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    rows, problems = 0, []
    try:
        with temporary.open("w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow([*CELL_COLUMNS, *REQUEST_COLUMNS])
            for row in merged.current:
                path = requests_file(row)
                if path is None:
                    continue
                try:
                    records = read_requests(path)
                except UnreadableError as exc:
                    problems.append(f"{layout.relative(path)}: {exc}")
                    continue
                writer.writerows(_lines(row, records))
                rows += len(records)
        if target.is_file() and filecmp.cmp(temporary, target, shallow=False):
            temporary.unlink()
        else:
            temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return target, rows, problems


def requests_file(row: Row) -> Path | None:
    """Where a whole cell's request records are; one whose companions are damaged has none to trust."""
    companion = row.cell.files.get("requests")
    if companion is None or row.judged.verdict != "whole":
        return None
    return companion_path(row.judged.path, row.cell, companion)


def read_requests(path: Path) -> list[RequestRecord]:
    """Unpack and check one cell's request records."""
    try:
        with path.open("rb") as packed, zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            data = reader.read(MAX_UNPACKED_BYTES + 1)
    except zstandard.ZstdError as exc:
        raise UnreadableError(f"not Zstandard data: {exc}") from exc
    if len(data) > MAX_UNPACKED_BYTES:
        raise UnreadableError(f"unpacks to more than {MAX_UNPACKED_BYTES} bytes: no request records")
    try:
        return [_DECODER.decode(line) for line in io.BytesIO(data)]
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UnreadableError(f"not request records as the schema says: {exc}") from exc


def _lines(row: Row, records: list[RequestRecord]) -> Iterator[tuple[object, ...]]:
    cell = row.cell
    of_cell = (
        cell.campaign,
        row.environment,
        cell.node,
        cell.cell,
        cell.configuration,
        cell.workload,
        cell.point,
        cell.repeat,
    )
    for record in records:
        yield (*of_cell, *_plain(record))


def _plain(record: RequestRecord) -> Iterator[object]:
    for value in msgspec.structs.astuple(record):
        yield ("yes" if value else "no") if isinstance(value, bool) else value


_DECODER = msgspec.json.Decoder(RequestRecord)
