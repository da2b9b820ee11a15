"""What is installed on a node: an engine's build, the flags it accepts, and whether its user can use it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .flags import parse_help

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION_S = 30.0
# SGLang imports torch before it prints its help.
HELP_S = 180.0
NOBODY = 65534

# An editable checkout keeps its version while its code changes, so its git commit belongs to the build.
PACKAGE_SCRIPT = """
import importlib.metadata as metadata, json, pathlib, sys, urllib.parse, urllib.request
name = sys.argv[1]
try:
    found = metadata.distribution(name)
except metadata.PackageNotFoundError:
    sys.exit(f"the package {name} is not installed for {sys.executable}")
origin = json.loads(found.read_text("direct_url.json") or "{}")
commit = origin.get("vcs_info", {}).get("commit_id")
if commit is None and origin.get("dir_info", {}).get("editable"):
    root = pathlib.Path(urllib.request.url2pathname(urllib.parse.urlparse(origin["url"]).path))
    for git in (parent / ".git" for parent in (root, *root.parents)):
        if (git / "HEAD").is_file():
            head = (git / "HEAD").read_text().strip()
            if not head.startswith("ref: "):
                commit = head
            elif (git / head[5:]).is_file():
                commit = (git / head[5:]).read_text().strip()
            elif (git / "packed-refs").is_file():
                lines = (git / "packed-refs").read_text().splitlines()
                commit = next((line.split()[0] for line in lines if line.endswith(" " + head[5:])), None)
            break
print(f"{name} {found.version}" + (f" git {commit[:12]}" if commit else ""))
"""


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1] if lines else f"exit status {self.status}"


class Account(NamedTuple):
    """Whom to run as; None where we are not root and run as ourselves."""

    name: str
    uid: int | None
    gid: int | None


def run_as(
    account: Account,
    argv: Sequence[str],
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run a program as the engine's user, in an empty home, so that it sees what the unit will see."""
    with tempfile.TemporaryDirectory(prefix="inference-server-") as home:
        who: dict[str, Any] = {}
        if account.uid is not None and account.gid is not None:
            os.chown(home, account.uid, account.gid)
            who = {"user": account.uid, "group": account.gid, "extra_groups": []}
        whole = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "HOME": home,
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "110",
            **(environment or {}),
        }
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
                cwd="/",
                env=whole,
                **who,
            )
        except subprocess.TimeoutExpired:
            return Ran(124, "", f"it did not end within {timeout_s:.0f} s")
        except OSError as exc:
            return Ran(127, "", f"{exc.strerror or exc}: {exc.filename or argv[0]}")
    return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def sha256_of(path: str | None) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else None
    except OSError:
        return None


def describe_engine(
    engine: Mapping[str, Any],
    account: Account,
    cache: Path,
    *,
    known: Mapping[str, Any] | None = None,
    keep: bool = True,
) -> dict[str, Any]:
    """Build, options and problem of one engine.

    The options come from the cache, or from `known` (an answer that a caller has kept), where key and so the
    build are the same; `keep`: a new build's are put into the cache. A problem comes with its `fault`:
    missing, launcher or package is not there; silent is a program that is there and gives no answer.
    """
    nothing: dict[str, Any] = {"build": None, "options": [], "problem": None, "fault": None, "cached": False}
    command = [str(word) for word in engine["command"]]
    name = engine["name"]
    launcher = engine.get("launcher_path")
    environment = engine.get("environment") or {}
    for path, fault in ((command[0], "missing"), (launcher, "launcher")):
        if path and not Path(path).exists():
            missing = (
                f"engine {name} is not installed: there is no {path}; install it, or say where it is (venv)"
            )
            return {**nothing, "problem": missing, "fault": fault}
    version_argv = engine.get("version_argv") or [command[0], "-I", "-c", PACKAGE_SCRIPT, engine["package"]]
    version = run_as(account, version_argv, VERSION_S, environment)
    if version.status != 0 or not version.out.strip():
        # A package's version is read from its files; a program of its own may well need the GPUs to answer.
        fault = "silent" if engine.get("version_argv") else "package"
        return {**nothing, "problem": _failed(name, "its version", account, version), "fault": fault}
    build = version.out.strip().splitlines()[-1]
    key = hashlib.sha256(json.dumps([command, build, sha256_of(launcher), environment]).encode()).hexdigest()
    cached = read_cache(cache, key)
    if cached is not None:
        return {**nothing, "key": key, "build": build, "options": cached, "cached": True}
    if known is not None and known["key"] == key:
        options = list(known["options"])
    else:
        helped = run_as(account, [*command, "--help"], HELP_S, environment)
        options = [option.to_json() for option in parse_help(helped.out).values()]
        if helped.status != 0 or not options:
            problem = _failed(name, "--help", account, helped)
            return {**nothing, "build": build, "problem": problem, "fault": "silent"}
    if keep:
        write_cache(cache, {"key": key, "build": build, "options": options})
    return {**nothing, "key": key, "build": build, "options": options}


def _failed(name: str, what: str, account: Account, ran: Ran) -> str:
    return f"engine {name}: {what} could not be read as the user {account.name}: {ran.last_line}"


def read_cache(path: Path, key: str) -> list[dict[str, Any]] | None:
    """The options kept for a build; None when there are none, or of another build, or torn."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept["options"] if isinstance(kept, dict) and kept.get("key") == key else None


def write_cache(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
    partial.replace(path)
