"""Environments: cells whose comparability fingerprint differs never share a table unseen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from collector.records import Cell


@dataclass(frozen=True)
class Environment:
    """A group of cells that were measured under the same comparability fingerprint."""

    name: str
    fields: dict[str, str]
    first_seen: str
    cells_ok: int


@dataclass(frozen=True)
class Difference:
    """A field in which environments differ, with its value in each."""

    field: str
    values: dict[str, str]


def canonical(value: object) -> str:
    """One text for one value, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def group(cells: Iterable[Cell]) -> dict[str, Environment]:
    """Name the environments A, B, … by their first good cell; the key is the canonical fingerprint.

    An environment in which nothing succeeded gets no name of its own as long as another one has
    results: its failures are shown as the holes they are.
    """
    first: dict[str, str] = {}
    good: dict[str, int] = {}
    fields: dict[str, Mapping[str, Any]] = {}
    for cell in cells:
        key = canonical(cell.fingerprint.comparability)
        ok = cell.status == "ok"
        if not ok and not cell.fingerprint.comparability:
            continue
        fields[key] = cell.fingerprint.comparability
        good[key] = good.get(key, 0) + ok
        first[key] = min(first.get(key, cell.started_at), cell.started_at)
    keys = [key for key in fields if good[key]] or list(fields)
    keys.sort(key=lambda key: (first[key], key))
    return {
        key: Environment(_letters(index), flatten(fields[key]), first[key], good[key])
        for index, key in enumerate(keys)
    }


def differences(environments: Iterable[Environment]) -> list[Difference]:
    """Name the fields that keep the environments apart."""
    known = list(environments)
    names = sorted({field for environment in known for field in environment.fields})
    rows = [
        Difference(
            field, {environment.name: environment.fields.get(field, "not given") for environment in known}
        )
        for field in names
    ]
    return [row for row in rows if len(set(row.values.values())) > 1]


def flatten(fields: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested fields as ``gpu.power_limit_w``, values as text."""
    flat: dict[str, str] = {}
    for key in sorted(fields):
        value = fields[key]
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = as_text(value)
    return flat


def as_text(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = [as_text(item) for item in value]
        # Eight equal GPUs are said once.
        return f"{len(texts)} x {texts[0]}" if len(texts) > 1 and len(set(texts)) == 1 else ", ".join(texts)
    return canonical(value)


def _letters(index: int) -> str:
    """A, B, … Z, AA, AB, …"""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
