"""Keep the stager on the node: one folder a version, so that a run in progress keeps its own."""

from __future__ import annotations

import base64
import compileall
import io
import os
import shutil
import zipfile
from pathlib import Path

PACKAGE = "model_stager"
KEPT = 3


def version_folder(base: Path, digest: str) -> Path:
    return base / digest[:16]


def is_installed(base: Path, digest: str) -> bool:
    return (version_folder(base, digest) / PACKAGE / "__main__.py").is_file()


def unpack(archive: str, into: Path) -> None:
    """Unpack the archive from the module's arguments; the package is then `into`/model_stager."""
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(archive))) as packed:
        names = packed.namelist()
        if any(Path(name).parts[0] != PACKAGE or ".." in Path(name).parts for name in names):
            raise ValueError(f"the archive holds other things than {PACKAGE}: {names}")
        packed.extractall(into)


def install(base: Path, digest: str, archive: str) -> None:
    """Put this version beside the others; it appears under its name only when whole."""
    base.mkdir(parents=True, exist_ok=True)
    scratch = base / f".{digest[:16]}.{os.getpid()}"
    try:
        unpack(archive, scratch)
        compileall.compile_dir(str(scratch), quiet=2)  # the unit runs where it can't write byte code
        target = version_folder(base, digest)
        if target.exists():  # without its __main__: somebody took it apart
            shutil.rmtree(target)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    link = base / f".current.{os.getpid()}"
    link.symlink_to(target.name)
    link.rename(base / "current")
    versions = [path for path in base.iterdir() if path.is_dir() and not path.is_symlink()]
    for old in sorted(versions, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        if old != target:
            shutil.rmtree(old, ignore_errors=True)
