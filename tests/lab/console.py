"""What the lab says to the person at the terminal: results on stdout, progress and complaints on stderr."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(f"lab: {text}\n")
    sys.stderr.flush()
