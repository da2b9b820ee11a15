"""Conditions on flags, as `ddtree-budget < 15 and speculative-algorithm == DDTREE`; never Python's own eval.

    condition  = all {"or" all}
    all        = one {"and" one}
    one        = ["not"] one | "(" condition ")" | flag comparison value | flag ["not"] "in" list | flag
    comparison = "<" | "<=" | ">" | ">=" | "==" | "!="
    value      = number | 'quoted' | word        list = "[" value {"," value} "]"

A flag alone asks whether it is set. A flag that isn't set makes every comparison false.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Callable, Union

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = Union[float, str]
Condition = Callable[["Mapping[str, Any]"], bool]

_TOKEN = re.compile(
    r"\s*(?:(?P<mark><=|>=|==|!=|<|>|\(|\)|\[|\]|,)"
    r"|(?P<quoted>'[^']*'|\"[^\"]*\")"
    r"|(?P<word>[A-Za-z0-9_.+/@:-]+))"
)
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_KEYWORDS = ("and", "or", "not", "in")
_MAX_DEPTH = 20


class ExpressionError(ValueError):
    """A condition that can't be read; the sentence says where."""


@lru_cache(maxsize=256)
def parse(text: str) -> Condition:
    return _Parser(text).whole()


def flag_value(flags: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - a flag has any value
    """The flag of that name, or the only one that ends with it: builds prefix names (`speculative-…`)."""
    if name in flags:
        return flags[name]
    longer = [key for key in flags if key.endswith(f"-{name}")]
    return flags[longer[0]] if len(longer) == 1 else None


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0

    def whole(self) -> Condition:
        condition = self.any_of()
        if self.at < len(self.tokens):
            raise self.error("needed and, or, or the end")
        return condition

    def any_of(self) -> Condition:
        return self.joined("or", self.all_of, any)

    def all_of(self) -> Condition:
        return self.joined("and", self.one, all)

    def joined(self, word: str, part: Callable[[], Condition], fold: Callable[[Any], bool]) -> Condition:
        parts = [part()]
        while self.take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else lambda flags: fold(each(flags) for each in parts)

    def one(self) -> Condition:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error("nested too deeply")
        try:
            if self.take("not"):
                inner = self.one()
                return lambda flags: not inner(flags)
            if self.take("("):
                inner = self.any_of()
                self.need(")")
                return inner
            return self.about_a_flag()
        finally:
            self.depth -= 1

    def about_a_flag(self) -> Condition:
        name = self.word("a flag's name")
        mark = next((mark for mark in _COMPARISONS if self.take(mark)), None)
        if mark is not None:
            wanted = self.value()
            return lambda flags: _compare(flag_value(flags, name), mark, wanted)
        outside = self.take("not")
        if outside or self.peek() == "in":
            self.need("in")
            choices = self.choices()
            return lambda flags: _is_one_of(flag_value(flags, name), choices, outside=outside)
        return lambda flags: _is_set(flag_value(flags, name))

    def choices(self) -> list[Value]:
        self.need("[")
        found = [self.value()]
        while self.take(","):
            found.append(self.value())
        self.need("]")
        return found

    def value(self) -> Value:
        token = self.peek()
        if token is None or token in _KEYWORDS or not re.match(r"['\"A-Za-z0-9_.+/@:-]", token):
            raise self.error("needed a value")
        self.at += 1
        return _as_value(token[1:-1] if token[0] in "'\"" else token)

    def word(self, what: str) -> str:
        token = self.peek()
        if token is None or token in _KEYWORDS or not re.match(r"[A-Za-z_]", token):
            raise self.error(f"needed {what}")
        self.at += 1
        return token

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def need(self, token: str) -> None:
        if not self.take(token):
            raise self.error(f"needed {token}")

    def error(self, needed: str) -> ExpressionError:
        token = self.peek()
        found = f"at {token!r}" if token is not None else "at its end"
        return ExpressionError(f"the condition {self.text!r} can't be read {found}: {needed}")


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"the condition {text!r} can't be read at {text[at:].strip()[:10]!r}")
        found.append(match.group().strip())
        at = match.end()
    if not found:
        raise ExpressionError("the condition is empty")
    return found


def _as_value(token: Any) -> Value:  # noqa: ANN401 - a flag has any value
    try:
        return float(token) if not isinstance(token, bool) else str(token).lower()
    except (TypeError, ValueError):
        return str(token)


def _is_set(found: Any) -> bool:  # noqa: ANN401 - a flag has any value
    return found is not None and found is not False


def _compare(found: Any, mark: str, wanted: Value) -> bool:  # noqa: ANN401 - a flag has any value
    """Flags are compared as a command line has them: 8 and "8" are one value. Text has no order."""
    if found is None:
        return False
    value = _as_value(found)
    if mark in {"==", "!="}:
        return (_same(value, wanted)) == (mark == "==")
    if isinstance(value, str) or isinstance(wanted, str):
        return False
    below, equal = value < wanted, value == wanted
    return {"<": below, "<=": below or equal, ">": not below and not equal, ">=": not below}[mark]


def _is_one_of(
    found: Any,  # noqa: ANN401 - a flag has any value
    choices: list[Value],
    *,
    outside: bool,
) -> bool:
    if found is None:
        return False
    return any(_same(_as_value(found), choice) for choice in choices) != outside


def _same(value: Value, wanted: Value) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return value.casefold() == wanted.casefold()
    return value == wanted
