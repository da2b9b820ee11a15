"""Edits of a container file's text: each takes the whole text and returns it changed."""

from __future__ import annotations

import re

RULE = "lxc.cgroup2.devices.allow"


def rule(major: int, key: str = RULE) -> str:
    return f"{key}: c {major}:* rwm"


def without_rules(text: str, *majors: int) -> str:
    """Drop the allow rules of these majors from all sections, however they are written."""
    pattern = re.compile(rf"^\s*lxc\.cgroup2?\.devices\.allow\s*[:=]\s*c\s+({'|'.join(map(str, majors))}):")
    return "".join(line for line in text.splitlines(keepends=True) if not pattern.match(line))


def with_lines(text: str, *lines: str) -> str:
    """Add lines at the end of the main section, before any snapshot."""
    main, sections = _split(text)
    return main + "".join(f"{line}\n" for line in lines) + sections


def with_snapshot(text: str, name: str, *lines: str) -> str:
    """Append a snapshot of the main section's plain keys, with these lines at its end."""
    main, sections = _split(text)
    keys = [line for line in main.splitlines() if re.match(r"^[a-z][a-z_]*\d*:", line)]
    body = "".join(f"{line}\n" for line in [*keys, "snaptime: 1764460800", *lines])
    return f"{main}{sections}\n[{name}]\n{body}"


def _split(text: str) -> tuple[str, str]:
    """The main section, and all that follows it; each ends with a newline or is empty."""
    match = re.search(r"^\[", text, re.MULTILINE)
    main, rest = (text[: match.start()], text[match.start() :]) if match else (text, "")
    main = main.rstrip("\n") + "\n"
    return main, f"\n{rest}" if rest else ""
