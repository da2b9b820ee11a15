"""Secrets of an engine: files on the node that only systemd reads, and how they reach the engine unseen."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Any

from .spelling import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SHOWN = (
    "a secret would be shown to everybody; put it into a file, and name that under the engine's credentials"
)
WRAPPER = "with_credentials.py"
# Variables that hold a secret; HF_TOKEN_PATH, say, holds only where one is.
_VARIABLE = re.compile(r"(TOKEN|API_?KEY|SECRET|PASSWORD)$", re.IGNORECASE)
# What LoadCredential= takes as it is.
_PATH = re.compile(r"/[\w./@+-]+")
# One word that can stand in an HTTP header, and in a log unescaped: there it must be found to be hidden.
_SECRET = re.compile(rb"[!-~]{8,4096}")
_ESCAPED = (b"'", b'"', b"\\")


def shown_secret(environment: Mapping[str, str]) -> str | None:
    """A variable that by its name holds a secret: it would show in `systemctl show` and in /proc."""
    return next((name for name in environment if _VARIABLE.search(name)), None)


def declared_credentials(where: str, declared: Mapping[str, Any], known: Sequence[str]) -> dict[str, str]:
    """Secret -> file; ValueError names what is wrong with the declaration."""
    for name, path in declared.items():
        if name not in known:
            all_known = ", ".join(known) or "none"
            raise ValueError(
                f"{where}: credentials: unknown {name}{nearest(name, known)}; known: {all_known}"
            )
        if not _PATH.fullmatch(str(path)):
            raise ValueError(
                f"{where}: credentials: {name} must be the absolute path of a file on the node that has it"
            )
    return {name: str(path) for name, path in declared.items()}


def handing_over(
    where: str,
    credentials: Mapping[str, str],
    ways: Mapping[str, Mapping[str, str]],
    command: Sequence[str],
    program_dir: str,
) -> tuple[str, ...]:
    """Words between an engine's Python and `-m MODULE` that give it its secrets; none where it finds them."""
    words = [f"--{way}={target}={name}" for name in sorted(credentials) for way, target in ways[name].items()]
    if not words:
        return ()
    if tuple(command[1:2]) != ("-m",):
        raise ValueError(
            f"{where}: credentials can be handed over to a Python module only: its command must begin with"
            f" its Python, -m and the module, not {' '.join(command)}"
        )
    return (f"{program_dir}/{WRAPPER}", *words)


def describe_credential(path: Path) -> str | None:
    """What is wrong with a secret's file on this node; nothing of its content is told."""
    try:
        mode = path.stat().st_mode
        content = path.read_bytes().strip() if stat.S_ISREG(mode) else b""
    except FileNotFoundError:
        return f"is not at {path}: put it there, owned by root, mode 0600"
    except OSError as exc:
        return f"at {path} cannot be read: {exc.strerror}"
    if not stat.S_ISREG(mode):
        return f"at {path} is no file"
    if mode & stat.S_IRWXO:
        return f"at {path} can be read by everybody (mode {stat.S_IMODE(mode):04o}): chmod 0600 {path}"
    if not _SECRET.fullmatch(content) or any(mark in content for mark in _ESCAPED):
        return (
            f"at {path} is not one word of at least 8 characters, of letters, digits and marks that are no"
            " quotes and no backslash"
        )
    return None
