"""What was installed, written beside it, and the cheap proof that it is still so.

<venv>                       a link to the environment in use, replaced by rename
<venv>.d/env-<digest>-<n>/   a venv, with its marker written last
<venv>.d/src-<digest>/       the project's own packages, found through a .pth file in the venv
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

MARKER = "node-python.json"
PTH = "node_python_packages.pth"
SCHEMA_VERSION = 1


def tree_proof(folder: Path) -> str:
    """A digest over names, sizes and modification times: a few milliseconds for thousands of files.

    Byte code is left out, as Python may write it at any time, and the .pth file, which has its own check.
    """
    digest = hashlib.sha256()
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            if name in (MARKER, PTH):
                continue
            path = Path(root, name)
            stat = path.lstat()
            digest.update(f"{path.relative_to(folder)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def read_marker(folder: Path) -> dict[str, Any]:
    """The marker of an environment or source folder, or an empty dict when there is none that can be used."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) and marker.get("schema_version") == SCHEMA_VERSION else {}


def write_marker(folder: Path, values: dict[str, Any]) -> None:
    """Write the marker with the folder's proof, whole or not at all."""
    marker = {"schema_version": SCHEMA_VERSION, "proof": tree_proof(folder), **values}
    scratch = folder / f"{MARKER}.new"
    with scratch.open("w", encoding="utf-8") as stream:
        json.dump(marker, stream, indent=1, sort_keys=True)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    scratch.rename(folder / MARKER)


def site_packages(env: Path, python: dict[str, Any]) -> Path:
    return env / "lib" / f"python{python['python']}" / "site-packages"


def environment_faults(venv: Path, python: dict[str, Any], requirements_digest: str) -> list[str]:
    """Why the environment can't be used as it is; an empty list when it can."""
    if not os.path.lexists(venv):
        return ["it was not there yet"]
    env = venv.resolve()
    marker = read_marker(env)
    if not marker:
        return ["the last installation did not finish"]
    faults = [
        f"its {key} was {marker.get(key)}, the node's is {python[key]}"
        for key in ("python", "executable", "machine")
        if marker.get(key) != python[key]
    ]
    if marker.get("requirements_digest") != requirements_digest:
        faults.append("the requirements have changed")
    if not faults and not (env / "bin" / "python").exists():
        faults.append("its Python is gone")
    if not faults and marker.get("proof") != tree_proof(env):
        faults.append("installed files have been changed")
    return faults


def source_faults(venv: Path, python: dict[str, Any], packages_digest: str) -> list[str]:
    """Why the project's own packages can't be used as they are; an empty list when they can."""
    linked = linked_sources(venv, python)
    if not packages_digest:
        return ["packages that are no longer wanted are still in use"] if linked else []
    folder = source_folder(venv, packages_digest)
    marker = read_marker(folder)
    if not marker:
        return ["the packages are not there or have changed"]
    if marker.get("proof") != tree_proof(folder):
        return ["installed package files have been changed"]
    return [] if linked == str(folder) else ["another version of the packages is in use"]


def linked_sources(venv: Path, python: dict[str, Any]) -> str:
    """The folder that the venv's .pth file names; empty for none."""
    try:
        return (site_packages(venv.resolve(), python) / PTH).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def source_folder(venv: Path, packages_digest: str) -> Path:
    return versions(venv) / f"src-{packages_digest[:16]}"


def versions(venv: Path) -> Path:
    return venv.with_name(f"{venv.name}.d")
