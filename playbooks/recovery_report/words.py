"""Messages, paths and diffs as a person at the terminal wants them."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

# A container's file is shown whole; a program that is pushed for the first time is not.
MOST_DIFF_LINES = 40


def from_here(text: str, folder: Path | None = None) -> str:
    """Take the working folder off the paths below it: shorter, and still right to paste."""
    here = folder or Path.cwd()
    if here == Path(here.anchor):
        return text
    return re.sub(rf"(?<![\w./-]){re.escape(str(here))}/(?=[\w.])", "", text)


def failure_message(result: dict[str, Any]) -> str:
    """The words of a failed result that help: its message, and a failed command's last output."""
    if "results" in result and not result.get("msg_from_action"):
        failed = [
            failure_message(item)
            for item in result["results"]
            if isinstance(item, dict) and item.get("failed")
        ]
        if failed:
            return "\n".join(failed)
    message = str(result.get("msg") or "no message").strip()
    for key in ("stderr", "module_stderr", "stdout", "module_stdout"):
        output = str(result.get(key) or "").strip()
        if output and output not in message:
            return message + "\n" + "\n".join(output.splitlines()[-12:])
    return message


def shortened(diff: str) -> str:
    """A diff that a person reads to its end; `-v` is no use here, a file's own diff tool is."""
    lines = diff.rstrip("\n").splitlines()
    if len(lines) <= MOST_DIFF_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:MOST_DIFF_LINES], f"… {len(lines) - MOST_DIFF_LINES} lines more"])


def wrapped(text: str, width: int = 106) -> str:
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in from_here(text).splitlines()
    )
