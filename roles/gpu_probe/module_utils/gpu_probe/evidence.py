"""Evidence as it came in: a field may be missing or of another type; then it is `unseen`, never a crash.

Pure; runs on the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def dig(tree: Any, *path: str) -> Any:  # noqa: ANN401 - the point is that the type is not known
    """The value at a path of keys, or None as soon as something on the way lacks the key."""
    for key in path:
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(key)
    return tree


def mapping(tree: Any, *path: str) -> Mapping[str, Any]:  # noqa: ANN401
    value = dig(tree, *path)
    return value if isinstance(value, Mapping) else {}


def text(tree: Any, *path: str) -> str | None:  # noqa: ANN401
    value = dig(tree, *path)
    return str(value) if isinstance(value, str) else None


def number(tree: Any, *path: str) -> int | None:  # noqa: ANN401
    value = dig(tree, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def real(tree: Any, *path: str) -> float | None:  # noqa: ANN401
    value = dig(tree, *path)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def truth(tree: Any, *path: str) -> bool | None:  # noqa: ANN401
    value = dig(tree, *path)
    return value if isinstance(value, bool) else None


def items(tree: Any, *path: str) -> list[Any]:  # noqa: ANN401
    value = dig(tree, *path)
    return list(value) if isinstance(value, (list, tuple)) else []


def records(tree: Any, *path: str) -> list[Mapping[str, Any]]:  # noqa: ANN401
    """The mappings of a list, whatever else is in it."""
    return [value for value in items(tree, *path) if isinstance(value, Mapping)]
