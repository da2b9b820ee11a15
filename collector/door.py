"""The door: every file that comes in gets a verdict, and only a believable one becomes a record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from collector.laws import broken_laws
from collector.records import CELL_SCHEMA_VERSION, Cell

if TYPE_CHECKING:
    from pathlib import Path

    from collector.records import Companion

Verdict = Literal["whole", "partial", "corrupt", "duplicate", "foreign"]

CELL_SCHEMA = "recover-and-bench/cell"
# A cell file has figures of one cell and some log lines; requests lie in a file of their own.
MAX_CELL_BYTES = 16 * 1024 * 1024
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Judged:
    """A file and what to think of it. ``cell`` is there when its content may be used."""

    path: Path
    sha256: str
    size_bytes: int
    verdict: Verdict
    reason: str
    cell: Cell | None = None


class NotOursError(Exception):
    """The content is of no shape this program knows."""


class UnreadableError(Exception):
    """The content is of our shape but broken."""


def judge_file(
    path: Path, *, node: str | None = None, campaign: str | None = None, superseded: bool = False
) -> Judged:
    """Judge one cell file; ``node`` and ``campaign`` are whose folder it lies in.

    An earlier attempt that was set aside is called ``<cell>.<mark>.json``, its companions likewise.
    """
    with path.open("rb") as source:
        data = source.read(MAX_CELL_BYTES + 1)
    digest = hashlib.sha256(data).hexdigest()

    def verdict(word: Verdict, reason: str, cell: Cell | None = None) -> Judged:
        return Judged(path, digest, len(data), word, reason, cell)

    try:
        cell = parse_cell(data)
    except NotOursError as exc:
        return verdict("foreign", str(exc))
    except UnreadableError as exc:
        return verdict("corrupt", str(exc))
    if (node, campaign) != (None, None) and (cell.node, cell.campaign) != (node, campaign):
        reason = f"it is of {cell.node}, campaign {cell.campaign}, but lies with {node}, campaign {campaign}"
        return verdict("foreign", reason)
    stem = path.name.removesuffix(".json")
    if stem != cell.cell and not (superseded and stem.startswith(f"{cell.cell}.")):
        return verdict("foreign", f"it is the cell {cell.cell} under another name")
    missing = _companion_problems(path, cell)
    if missing:
        return verdict("partial", "; ".join(missing), cell)
    return verdict("whole", "", cell)


def parse_cell(data: bytes) -> Cell:
    """Turn a file's bytes into a cell that keeps every law, or say why not."""
    content = parse_json(data)
    if not isinstance(content, dict):
        raise NotOursError(f"JSON, but a {_json_type(content)} and no object")
    require_known(content, schema=CELL_SCHEMA, newest=CELL_SCHEMA_VERSION)
    try:
        cell = msgspec.convert(content, Cell)
    except msgspec.ValidationError as exc:
        raise UnreadableError(f"not as the schema says: {exc}") from exc
    broken = broken_laws(cell)
    if broken:
        raise UnreadableError("; ".join(broken))
    return cell


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read strict JSON; the error says where in the file it ends to make sense."""
    if len(data) > MAX_CELL_BYTES:
        raise UnreadableError(f"larger than {MAX_CELL_BYTES} bytes: no cell file")
    if not data:
        raise UnreadableError("empty file")
    if not data.strip(b"\0"):
        raise UnreadableError(f"{len(data)} zero bytes, as a power loss leaves them")
    try:
        return msgspec.json.decode(data.removeprefix(BOM))
    except msgspec.DecodeError as exc:
        text = str(exc)
        if "truncated" in text:
            raise UnreadableError(f"cut off: the file ends at byte {len(data)} inside a value") from exc
        if "trailing characters" in text:
            raise UnreadableError(f"more than one JSON document in the file: {text}") from exc
        raise UnreadableError(f"not JSON: {text}") from exc
    except (RecursionError, UnicodeDecodeError) as exc:
        raise UnreadableError(f"not JSON that can be read: {exc}") from exc


def require_known(content: dict[str, Any], *, schema: str, newest: int) -> None:
    """Refuse another schema, and a version that this program is too old for."""
    found = content.get("schema")
    if found is None:
        raise NotOursError("JSON of no known shape: it names no schema")
    if found != schema:
        raise NotOursError(f"its schema is {found!r}, needed is {schema!r}")
    version = content.get("schema_version", content.get("version"))
    if isinstance(version, int) and not isinstance(version, bool) and version > newest:
        raise NotOursError(
            f"its schema version is {version}, the newest that this program reads is {newest}: "
            "update the collector"
        )


def companion_path(path: Path, cell: Cell, companion: Companion) -> Path:
    """Where a cell file's companion lies: beside it, and renamed with it when both were set aside."""
    return path.with_name(path.name.removesuffix(".json") + companion.name.removeprefix(cell.cell))


def _companion_problems(path: Path, cell: Cell) -> list[str]:
    problems = []
    for role, companion in sorted(cell.files.items()):
        beside = companion_path(path, cell, companion)
        try:
            size = beside.stat().st_size
            intact = size == companion.size_bytes and _digest(beside) == companion.sha256
        except FileNotFoundError:
            problems.append(f"its {role} file {companion.name} is missing")
            continue
        if not intact:
            problems.append(f"its {role} file {companion.name} is not the one that was written with it")
    return problems


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _json_type(value: object) -> str:
    names = {list: "list", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")
