"""The event loop that measures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")


def run_in_loop(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """In a new loop of the faster kind where that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - the node may not have it
    except ImportError:
        return asyncio.run(coroutine)
    found: _T = uvloop.run(coroutine)
    return found
