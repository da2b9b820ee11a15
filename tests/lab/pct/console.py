"""Answers on stdout, warnings and errors on stderr, as they stand."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str, *, end: str = "\n") -> None:
    sys.stderr.write(text + end)
    sys.stderr.flush()
