#!/usr/bin/env python3
"""Run an engine that takes its secrets as arguments, without showing them.

systemd puts the secrets into $CREDENTIALS_DIRECTORY (LoadCredential=), readable by the unit alone. They
become arguments within this process only: the kernel's list of processes keeps the command line that it was
started with. What the engine prints of them (SGLang logs all its arguments) is blotted out before it reaches
the journal.

    with_credentials.py [--flag FLAG=NAME]... [--variable VARIABLE=NAME]... -m MODULE [ARGUMENT]...
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOT = "[credential]"


class BlottingStream:
    """A text stream that hides secrets in what is written to it; all else is the stream's own."""

    def __init__(self, stream: TextIO, secrets: Sequence[str]) -> None:
        self._stream = stream
        self._secrets = secrets

    def write(self, text: str) -> int:
        for secret in self._secrets:
            text = text.replace(secret, BLOT)
        return self._stream.write(text)

    def writelines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)


def read(name: str) -> str:
    """A credential's only line."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        sys.exit("with_credentials: no $CREDENTIALS_DIRECTORY: a unit with LoadCredential= starts this")
    try:
        return (Path(folder) / name).read_text(encoding="utf-8").strip()
    except OSError as exc:
        sys.exit(f"with_credentials: the credential {name} cannot be read: {exc}")


def blot_out(folder: str | None) -> None:
    """From here on no stream of this process shows a credential."""
    secrets = []
    for path in Path(folder).iterdir() if folder and Path(folder).is_dir() else ():
        secrets += [line for line in path.read_text(encoding="utf-8").split() if line]
    if secrets:
        sys.stdout = BlottingStream(sys.stdout, secrets)  # type: ignore[assignment] # a stream in all that is used
        sys.stderr = BlottingStream(sys.stderr, secrets)  # type: ignore[assignment] # as above


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--flag", action="append", default=[], metavar="FLAG=NAME", help="give a credential as --FLAG"
    )
    parser.add_argument(
        "--variable",
        action="append",
        default=[],
        metavar="VARIABLE=NAME",
        help="put the path of a credential's file into the environment",
    )
    return parser.parse_args(words)


def main(argv: Sequence[str]) -> None:
    at = argv.index("-m") if "-m" in argv else len(argv)
    options = parse(argv[:at])
    module, arguments = (argv[at + 1], list(argv[at + 2 :])) if len(argv) > at + 1 else ("", [])
    if not module:
        sys.exit("with_credentials: -m MODULE is missing")
    for pair in options.flag:
        flag, _, name = pair.partition("=")
        arguments.append(f"--{flag}={read(name)}")
    for pair in options.variable:
        variable, _, name = pair.partition("=")
        read(name)
        os.environ[variable] = str(Path(os.environ["CREDENTIALS_DIRECTORY"]) / name)
    sys.argv = [module, *arguments]
    # This file stays the main module: processes that the engine spawns run it again, and blot out as well.
    runpy.run_module(module, run_name="__main__", alter_sys=False)


# At import, not in main(): a spawned process imports this file under another name.
blot_out(os.environ.get("CREDENTIALS_DIRECTORY"))
if __name__ == "__main__":
    main(sys.argv[1:])
