"""Make the venv from the wheelhouse, the project's packages beside it; nothing half-made is ever in use."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import marker

Run = Callable[[list[str]], tuple[int, str, str]]

KEPT = 1  # replaced environments that stay, as a program that still runs may have started from it
GROWTH = 4  # room for unpacked wheels and installed files, in sizes of the archive


class InstallError(Exception):
    """The installation can't go on; the message says why and what to do."""


class Archive(NamedTuple):
    """An archive that the controller has pushed."""

    path: Path
    sha256: str


def require_room(venv: Path, archives: Sequence[Archive]) -> None:
    """Refuse before the first write when the folder can't be written or is too small."""
    folder = next(parent for parent in venv.parents if parent.is_dir())
    if not os.access(folder, os.W_OK):
        raise InstallError(f"{folder} can't be written by uid {os.geteuid()}, so {venv} can't be made there")
    need = GROWTH * sum(archive.path.stat().st_size for archive in archives)
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < need:
        raise InstallError(
            f"{folder} has {free / 1e6:.0f} MB free, {venv} needs about {need / 1e6:.0f} MB: "
            "make room or set node_python_venv to a path on a larger disk"
        )
    if os.path.lexists(venv) and not venv.is_symlink():
        raise InstallError(
            f"{venv} exists and was not made by node_python: move it away or choose another path"
        )


def require_whole(archive: Archive) -> None:
    """Refuse an archive that did not arrive as it was sent."""
    digest = hashlib.sha256()
    with archive.path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    if digest.hexdigest() != archive.sha256:
        raise InstallError(
            f"the archive arrived with sha256 {digest.hexdigest()}, {archive.sha256} was sent: run again"
        )


@contextlib.contextmanager
def held(venv: Path) -> Iterator[None]:
    """Wait for another installation into the same venv; the lock dies with its owner."""
    room = marker.versions(venv)
    room.mkdir(parents=True, exist_ok=True)
    with (room / ".lock").open("w", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        for kind in ("wheelhouse-*", "sources-*"):  # of an installation that was killed
            for folder in room.glob(kind):
                shutil.rmtree(folder)
        yield


def unpack(archive: Archive, into: Path) -> None:
    """Unpack an archive that may hold plain files and folders only."""
    with tarfile.open(archive.path) as tar:
        for member in tar:
            plain = (member.isfile() or member.isdir()) and not member.name.startswith("/")
            if not plain or ".." in member.name.split("/"):
                raise InstallError(f"the archive holds {member.name!r}, which is no plain file inside it")
            member.uid, member.gid = os.geteuid(), os.getegid()
            tar.extract(member, into)


def install_environment(
    run: Run, venv: Path, python: dict[str, Any], requirements_digest: str, archive: Archive
) -> None:
    """Make a new environment from the wheelhouse and switch to it."""
    room = marker.versions(venv)
    stem, number = f"env-{requirements_digest[:12]}", 1
    while os.path.lexists(room / f"{stem}-{number}"):
        number += 1
    env = room / f"{stem}-{number}"
    try:
        with tempfile.TemporaryDirectory(prefix="wheelhouse-", dir=room) as scratch:
            unpack(archive, Path(scratch))
            pins = _fill(run, env, python, Path(scratch))
        values = {key: python[key] for key in ("python", "executable", "machine")}
        marker.write_marker(env, {**values, "requirements_digest": requirements_digest, "pins": pins})
        replace_link(venv, env)
    except BaseException:
        shutil.rmtree(env, ignore_errors=True)
        raise


def _fill(run: Run, env: Path, python: dict[str, Any], scratch: Path) -> list[str]:
    _do(run, [python["executable"], "-m", "venv", "--without-pip", str(env)], "make a venv")
    wanted = scratch / "requirements.txt"
    pins = [line for line in wanted.read_text(encoding="utf-8").splitlines() if line]
    if pins:
        # pip runs from its own wheel: nothing but the pinned packages lands in the venv.
        pip = next((scratch / "wheels").glob("pip-*.whl"))
        command = [str(env / "bin" / "python"), str(pip / "pip"), "--isolated", "install", "--quiet"]
        command += [
            "--no-index",
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--root-user-action=ignore",
        ]
        command += ["--find-links", str(scratch / "wheels"), "--requirement", str(wanted)]
        _do(run, command, "install the packages")
    return pins


def _do(run: Run, command: list[str], what: str) -> None:
    rc, out, err = run(command)
    if rc:
        found = [line for line in (err or out).splitlines() if line.strip()]
        errors = [line for line in found if line.startswith("ERROR:")] or found[-3:]
        if "No space left" in err:
            errors = ["no space left on the device"]
        raise InstallError(f"could not {what}: {' '.join(errors) or f'exit code {rc}'} (by {command[0]})")


def install_sources(
    run: Run, venv: Path, python: dict[str, Any], packages_digest: str, archive: Archive
) -> None:
    """Put the project's packages into a folder of their own and point the venv at it."""
    folder = marker.source_folder(venv, packages_digest)
    known = marker.read_marker(folder)
    if not known or known["proof"] != marker.tree_proof(folder):
        shutil.rmtree(folder, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix="sources-", dir=marker.versions(venv)))
        try:
            unpack(archive, scratch)
            interpreter = str(venv.resolve() / "bin" / "python")
            _do(run, [interpreter, "-m", "compileall", "-q", str(scratch)], "compile the packages")
            scratch.chmod(0o755)
            marker.write_marker(scratch, {"packages_digest": packages_digest})
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    link_sources(venv, python, folder)


def link_sources(venv: Path, python: dict[str, Any], folder: Path | None) -> None:
    """Name the folder in a .pth file, whole or not at all; without one, take the file away."""
    pth = marker.site_packages(venv.resolve(), python) / marker.PTH
    if folder is None:
        pth.unlink(missing_ok=True)
        return
    scratch = pth.with_suffix(".new")
    scratch.write_text(f"{folder}\n", encoding="utf-8")
    scratch.rename(pth)


def replace_link(link: Path, target: Path) -> None:
    scratch = link.with_name(f"{link.name}.new-{os.getpid()}")
    scratch.symlink_to(target)
    scratch.rename(link)


def prune(venv: Path, packages_digest: str) -> None:
    """Remove what is neither in use nor its predecessor."""
    used = {venv.resolve()}
    if packages_digest:
        used.add(marker.source_folder(venv, packages_digest))
    for kind in ("env-*", "src-*"):
        spare = [folder for folder in marker.versions(venv).glob(kind) if folder not in used]
        for folder in sorted(spare, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
            shutil.rmtree(folder, ignore_errors=True)
