"""What somebody may have meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def nearest(word: str, words: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return f"; nearest: {near[0]}" if near else ""
