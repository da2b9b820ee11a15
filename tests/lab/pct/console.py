"""Answers on stdout, warnings and errors on stderr, as they stand."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")
