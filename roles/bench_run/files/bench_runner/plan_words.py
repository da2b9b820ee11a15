"""What is wrong in a document, key by key: unknown words with the nearest, wrong types with what is there."""

from __future__ import annotations

import difflib
import re
import types
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


def nearest(word: str, words: Collection[str]) -> str:
    """A sentence's end: the word that was meant, else the words there are."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(sorted(words))}" if words else "there is none"


def unknown_keys(raw: dict[Any, Any], struct: type[msgspec.Struct], path: str = "") -> Iterator[str]:
    hints = get_type_hints(struct)
    for key, value in raw.items():
        where = f"{path}{key}"
        if key not in hints:
            yield f"{where}: unknown key; {nearest(str(key), list(hints))}"
            continue
        for inner in _structs_in(hints[key]):
            if isinstance(value, dict):
                yield from unknown_keys(value, inner, f"{where}.")
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, dict):
                        yield from unknown_keys(item, inner, f"{where}[{index}].")


def in_words(message: str, raw: object, struct: type[msgspec.Struct]) -> str:
    """From "Expected `int`, got `str` - at `$.workloads.code.points[1]`" to a sentence with the value."""
    text, _, place = message.partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    text = text.replace("`", "")
    missing = re.match(r"Object missing required field (\w+)", text)
    if missing:
        return f"{path + '.' if path else ''}{missing.group(1)}: missing"
    found = _value_at(raw, path)
    if text.startswith("Invalid enum value"):
        words = [str(choice) for choice in _choices_at(struct, path)]
        needed = f"one of {', '.join(words)}" if len(words) > 1 else f"{path} {''.join(words)}"
        return f"{path}: found {shown(found)}, needed {needed}{_meant(found, words)}"
    needed = re.sub(r"^Expected ", "needed ", re.sub(r", got .*$", "", text))
    return f"{path}: found {shown(found)}, {needed}"


def shown(value: object) -> str:
    text = repr(value)
    if len(text) > 60:  # noqa: PLR2004 - a line's worth
        text = text[:57] + "..."
    return f"{text} ({type(value).__name__})"


def _value_at(raw: Any, path: str) -> Any:  # noqa: ANN401 - walks any document
    for step in _STEP.findall(path):
        if isinstance(raw, list) and step[1:-1].isdigit():
            raw = raw[int(step[1:-1])]
        elif isinstance(raw, dict):
            raw = raw.get(step)
    return raw


def _choices_at(struct: type[msgspec.Struct], path: str) -> list[Any]:
    """The words that a key may have, from its type."""
    hint: Any = struct
    for step in _STEP.findall(path):
        if step.startswith("["):
            continue  # a list's type has its items' within
        inner = next((each for each in _structs_in(hint)), None)
        if inner is None:
            return []
        hint = get_type_hints(inner).get(step)
    return list(_literals_in(hint))


def _structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - a type expression has no narrower type
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    elif get_origin(hint) in {Union, list, Annotated, getattr(types, "UnionType", Union)}:
        for inner in get_args(hint):
            yield from _structs_in(inner)


def _literals_in(hint: Any) -> Iterator[Any]:  # noqa: ANN401 - a type expression has no narrower type
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        for inner in get_args(hint):
            yield from _literals_in(inner)


def _meant(found: object, words: list[str]) -> str:
    close = difflib.get_close_matches(str(found), words, n=1)
    return f"; did you mean {close[0]!r}?" if close and len(words) > 1 else ""
