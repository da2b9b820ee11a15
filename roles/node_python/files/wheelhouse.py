"""Build the wheelhouse for one node's Python on the controller, and say where it is.

    python wheelhouse.py --requirements FILE --python 3.11 --machine x86_64 --glibc 2.36 --cache DIR

Prints one JSON line: {"archive", "sha256", "wheels", "built"}; on failure {"error"} and exit code 1.
A wheelhouse is kept by what it was made from, so a second call (or one without a network) only reads it.
"""  # noqa: INP001 - a program, run by its path

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# The node installs with this pip, straight from its wheel: it needs neither ensurepip nor python3-venv.
PIP = "pip==25.3"
PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*==\s*(?P<version>[^\s;*,]+)",
)
NO_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|Connection refused|Name or service not known"
    r"|Temporary failure in name|Network is unreachable|ProxyError|ReadTimeout"
)


class WheelhouseError(Exception):
    """The wheelhouse can't be built; the message says why and what to do."""


class Target(NamedTuple):
    """The node's Python, as pip needs to know it."""

    python: str
    machine: str
    glibc: str

    def __str__(self) -> str:
        return f"CPython {self.python} on {self.machine} with glibc {self.glibc}"


class Requirements(NamedTuple):
    """A requirements file: the lines that name packages, and pip's options (index, find-links)."""

    path: Path
    lines: list[str]
    options: list[str]

    @property
    def pins(self) -> dict[str, str]:
        found = (PIN.match(line) for line in self.lines)
        return {canonical(match["name"]): match["version"] for match in found if match}


def canonical(name: str) -> str:
    """The name as the package index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_requirements(path: Path) -> Requirements:
    """Read a requirements file in which every package is pinned with `==`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise WheelhouseError(f"the requirements file {path} can't be read: {exc.strerror}") from exc
    lines: list[str] = []
    options: list[str] = []
    text = text.replace("\\\n", " ")
    for number, raw in enumerate(text.splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not line:
            continue
        if line.startswith("-"):
            options.append(line)
        elif PIN.match(line):
            lines.append(re.sub(r"\s+--hash=\S+", "", line))
        else:
            raise WheelhouseError(
                f"{path} line {number}: `{line}` is not pinned; write it as `name==version`, "
                "so that every node gets the same build"
            )
    return Requirements(path, lines, options)


def platforms(target: Target) -> list[str]:
    """The wheel platforms that the node's C library can load, newest first."""
    try:
        major, minor = (int(part) for part in target.glibc.split(".")[:2])
    except ValueError:
        raise WheelhouseError(
            f"the node's C library is {target.glibc or 'not glibc'}: wheels are fetched for glibc only"
        ) from None
    if major != 2:  # noqa: PLR2004 - glibc has been 2.x since 1997, the manylinux names with it
        raise WheelhouseError(f"glibc {target.glibc} is not known here: manylinux names are defined for 2.x")
    found = [f"manylinux_2_{step}_{target.machine}" for step in range(minor, 4, -1)]
    found += [
        f"{name}_{target.machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux")
    ]
    return found


def pip_download(wanted: list[str], options: list[str], target: Target, into: Path, near: Path) -> None:
    """Fetch wheels (never source packages) for the node's Python with this interpreter's pip."""
    short = target.python.replace(".", "")
    listed = into / "wanted.txt"
    listed.write_text("\n".join([*options, *wanted]) + "\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", target.python]
    for abi in (f"cp{short}", "abi3", "none"):
        command += ["--abi", abi]
    for platform in platforms(target):
        command += ["--platform", platform]
    command += ["--dest", str(into / "wheels"), "--requirement", str(listed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=near)
    if done.returncode:
        raise WheelhouseError(explain_pip(done.stderr, target))


def explain_pip(stderr: str, target: Target) -> str:
    """Turn pip's failure into one sentence."""
    if "No module named pip" in stderr:
        return f"the controller's Python ({sys.executable}) has no pip: run `{sys.executable} -m ensurepip`"
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    missing = [re.search(r"No matching distribution found for (\S+)", line) for line in errors]
    names = sorted({match[1] for match in missing if match})
    if NO_NETWORK.search(stderr):
        what = ", ".join(names) or "the packages"
        return (
            f"the package index can't be reached from the controller, and {what} isn't in its wheelhouse "
            "cache: run once with a network, or copy the cache from a machine that has one"
        )
    if names:
        versions = next(
            (m[1] for m in (re.search(r"from versions: ([^)]*)", e) for e in errors) if m), "none"
        )
        return (
            f"no wheel of {', '.join(names)} for {target} (versions with one: {versions}): "
            "pin a version that has a wheel for it, or choose another Python with node_python_interpreter"
        )
    return "pip download failed: " + (errors[-1] if errors else stderr.strip()[-500:] or "no message")


def check_complete(requirements: Requirements, wheels: list[Path]) -> None:
    """Refuse a file that leaves a dependency to chance: each wheel's name has a pin."""
    loose = []
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        if canonical(name) not in {*requirements.pins, "pip"}:
            loose.append(f"{canonical(name)}=={version}")
    if loose:
        raise WheelhouseError(
            f"{requirements.path} does not pin everything that its packages need; "
            f"add: {', '.join(sorted(loose))}"
        )


def wheelhouse_key(requirements: Requirements, target: Target) -> str:
    parts = [PIP, *target, *sorted(requirements.lines), *requirements.options]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def held(lock: Path) -> Iterator[None]:
    """Wait for the lock: two nodes with the same Python ask for the same wheelhouse at once."""
    with lock.open("w", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def read_index(folder: Path) -> dict[str, object] | None:
    """The cached wheelhouse, when it is whole."""
    try:
        index: dict[str, object] = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        whole = file_sha256(folder / "wheelhouse.tar") == index["sha256"]
    except (OSError, ValueError, KeyError):
        return None
    return index if whole else None


def build(requirements: Requirements, target: Target, folder: Path) -> dict[str, object]:
    """Download, check and pack; the folder appears under its name only when whole."""
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.partial-", dir=folder.parent) as scratch:
        room = Path(scratch)
        wheels = room / "wheels"
        wheels.mkdir()
        near = requirements.path.resolve().parent  # a relative --find-links is meant from the file's folder
        own_pip = [] if "pip" in requirements.pins else [PIP]
        pip_download([*requirements.lines, *own_pip], requirements.options, target, room, near)
        check_complete(requirements, sorted(wheels.iterdir()))
        (room / "wanted.txt").unlink()
        (room / "requirements.txt").write_text(
            "".join(f"{line}\n" for line in requirements.lines), encoding="utf-8"
        )
        packed = room / "packed"
        packed.mkdir()
        with tarfile.open(packed / "wheelhouse.tar", "w") as archive:
            for path in [room / "requirements.txt", *sorted(wheels.iterdir())]:
                archive.add(path, arcname=str(path.relative_to(room)))
        index: dict[str, object] = {
            "schema_version": 1,
            "target": str(target),
            "wheels": sorted(path.name for path in wheels.iterdir() if not path.name.startswith("pip-")),
            "sha256": file_sha256(packed / "wheelhouse.tar"),
        }
        (packed / "index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        packed.rename(folder)
    return index


def wheelhouse(requirements: Requirements, target: Target, cache: Path) -> dict[str, object]:
    """The wheelhouse for these requirements and this Python: from the cache, or built now."""
    platforms(target)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        folder = cache / wheelhouse_key(requirements, target)
        with held(folder.with_suffix(".lock")):
            index = read_index(folder)
            built = index is None
            if index is None:
                index = build(requirements, target, folder)
    except OSError as exc:
        raise WheelhouseError(
            f"the wheelhouse cache {cache} can't be used: {exc.strerror} ({exc.filename})"
        ) from exc
    return {
        "archive": str(folder / "wheelhouse.tar"),
        "sha256": index["sha256"],
        "wheels": index["wheels"],
        "built": built,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Build the wheelhouse for one node's Python on the controller."
    )
    parser.add_argument("--requirements", type=Path, required=True)
    parser.add_argument("--python", required=True, help="major.minor of the node's Python")
    parser.add_argument("--machine", required=True, help="as uname -m says it")
    parser.add_argument("--glibc", required=True)
    parser.add_argument("--cache", type=Path, required=True)
    args = parser.parse_args(argv)
    os.umask(0o022)
    try:
        target = Target(args.python, args.machine, args.glibc)
        answer = wheelhouse(read_requirements(args.requirements), target, args.cache)
    except WheelhouseError as exc:
        sys.stdout.write(json.dumps({"error": str(exc)}) + "\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
