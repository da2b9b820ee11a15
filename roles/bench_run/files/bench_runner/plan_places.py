"""Where each key of a YAML text stands, so that what is wrong with it can be found by its line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def line_numbers(text: str) -> dict[str, int]:
    """Path such as `workloads.code.points[1]` -> its line."""
    return dict(_walk(_root(text), ""))


def doubles(text: str) -> Iterator[str]:
    """Keys that stand in one mapping twice: YAML takes the last and forgets the first."""
    yield from _doubles(_root(text), "")


def place_of(problem: str, places: Mapping[str, str]) -> str | None:
    """The place of what a sentence such as `limits.cel_s: unknown key` begins with, or of what it is in."""
    path = re.split(r":| \(", problem, maxsplit=1)[0]
    while path:
        if path in places:
            return places[path]
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return None


def _root(text: str) -> yaml.Node | None:
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _walk(node: yaml.Node | None, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            where = f"{path}.{key.value}" if path else str(key.value)
            yield where, key.start_mark.line + 1
            yield from _walk(value, where)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            where = f"{path}[{index}]"
            yield where, value.start_mark.line + 1
            yield from _walk(value, where)


def _doubles(node: yaml.Node | None, path: str) -> Iterator[str]:
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _doubles(value, f"{path}[{index}]")
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            where = f"{path}.{key.value}" if path else str(key.value)
            line = key.start_mark.line + 1
            if where in lines:
                yield f"{where}: stands there twice (lines {lines[where]} and {line}); delete one"
            lines[where] = line
            yield from _doubles(value, where)
