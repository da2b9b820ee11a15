"""Text rules of systemd unit files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A unit or description is only ever removed when this line is in it.
MARKER = "Written by the role inference_server"


def quote(word: str) -> str:
    """A word of ExecStart= that reaches the program as it is: no specifiers, variables or splitting."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = escaped == word and word and all(char.isalnum() or char in "-_./:=,@+" for char in word)
    return word if plain else f'"{escaped}"'


def quote_environment(variables: Mapping[str, str]) -> list[str]:
    """Assignments for Environment=; a dollar is plain there, so it isn't doubled."""
    return [quote(f"{name}={value}").replace("$$", "$") for name, value in sorted(variables.items())]


def command_line(argv: Sequence[str]) -> str:
    """ExecStart= with a line per flag, which makes a readable diff."""
    lines: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(quote(word))
    return " \\\n  ".join(" ".join(line) for line in lines)
