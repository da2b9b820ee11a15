"""Prompts of an exact length by the server's own tokenizer, each with its own beginning.

The beginning (a nonce) makes a prefix cache useless between requests, unless a shared one is asked for, as
the requests of an application have it. The server itself counts the tokens.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from bench_runner.errors import ServerError
from bench_runner.files import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAMES = (
    "fib",
    "total",
    "items",
    "left",
    "right",
    "node",
    "cache",
    "index",
    "value",
    "result",
    "limit",
    "depth",
)
_LINES = (
    "def {a}({b}, {c}):\n",
    "    if {b} < {n}:\n        return {c}\n",
    "    {a} = {b} + {c} * {n}\n",
    "    for {b} in range({n}):\n        {c}.append({b} - {n})\n",
    "    # add {a} to {b} before {c} is read\n",
    "    return {a}({b} - 1) + {a}({b} - {n})\n\n",
    "    while {a} and {b}[{n}] != {c}:\n        {a} -= {n}\n",
    "    print({a}, {b}, '{c}')\n",
)
# Tried at a prompt's end to come out at the exact length: most tokenizers make one token of each.
_FILLERS = (" a", " the", " x", "\n", " 1", ".", " is", "!")
_MAX_STEPS = 24


class PromptMaker:
    """`count` tells how many tokens the server makes of a text; texts are kept: configurations share them."""

    def __init__(
        self, seed: int, count: Callable[[str], int], *, kept: dict[tuple[str, int], str] | None = None
    ) -> None:
        self.seed = seed
        self.count = count
        self.kept = kept if kept is not None else {}

    def prompt(self, purpose: str, tokens: int, *, shared: int = 0) -> str:
        """A text of exactly `tokens` tokens; its first `shared` are those of all prompts that share as many.

        The same purpose gives the same text.
        """
        key = (f"{purpose}+{shared}" if shared else purpose, tokens)
        text = self.kept.get(key)
        if text is None or self.count(text) != tokens:
            head = self.prompt("shared", shared) if shared else ""
            text = self._make(purpose, tokens, head)
            self.kept[key] = text
        return text

    def _make(self, purpose: str, tokens: int, head: str) -> str:
        nonce = sha256_of(f"{self.seed}/{purpose}".encode())[:12]
        pieces = [f"{head}# {nonce}\n"]
        source = _code(random.Random(f"{self.seed}/{purpose}"))  # noqa: S311 - text, not secrets
        shared = self.count(head) if head else 0
        per_piece = 12.0  # a first guess; corrected by each count
        best = ""
        for _ in range(_MAX_STEPS):
            text = "".join(pieces)
            counted = self.count(text)
            if counted == tokens:
                return text
            if counted > tokens:
                break
            best = text
            per_piece = max((counted - shared) / len(pieces), 1.0)
            missing = int((tokens - counted) / per_piece * 0.98)
            pieces.extend(next(source) for _ in range(max(missing, 1)))
        return self._close(best, "".join(pieces)[len(best) :], tokens)

    def _close(self, text: str, more: str, tokens: int) -> str:
        """Come from below to the exact length: as much of `more` as fits, then fillers."""
        low, high = 0, len(more)
        while high - low > 1:
            middle = (low + high) // 2
            counted = self.count(text + more[:middle])
            if counted == tokens:
                return text + more[:middle]
            low, high = (middle, high) if counted < tokens else (low, middle)
        text += more[:low]
        counted = self.count(text)
        for _ in range(_MAX_STEPS):
            if counted == tokens:
                return text
            for filler in _FILLERS:
                longer = self.count(text + filler)
                if counted < longer <= tokens:
                    text, counted = text + filler, longer
                    break
            else:
                break
        if counted == tokens:
            return text
        raise ServerError(
            "no_exact_prompt", f"no prompt of exactly {tokens} tokens was found (nearest: {counted})"
        )


def _code(rng: random.Random) -> Iterator[str]:
    """Program-like text without end."""
    while True:
        a, b, c = rng.sample(_NAMES, 3)
        yield rng.choice(_LINES).format(a=a, b=b, c=c, n=rng.randint(1, 99))
