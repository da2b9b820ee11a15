"""Start the stager for one model, and tell whether it still works: as a systemd unit, or without systemd."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from . import command, state

Run = Callable[[list[str]], tuple[int, str, str]]

START_S = 5.0
ALIVE = ("active", "activating", "deactivating", "reloading")


class StartError(Exception):
    """The stager could not be started; the message says why."""


class Systemd:
    """A transient unit a model."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def token_path(self, model: str, token_file: str) -> str:
        """Where the stager reads the token: root's file, handed to this unit alone."""
        return command.credential_path(model) if token_file else ""

    def start(self, model: str, argv: list[str], setting: command.Setting) -> None:
        self._run(
            ["systemctl", "reset-failed", command.unit_name(model)]
        )  # of an earlier run; often there is none
        rc, out, err = self._run(command.systemd_run(model, argv, setting))
        if rc:
            raise StartError(f"{command.unit_name(model)} could not be started: {(err or out).strip()}")

    def is_alive(self, root: str, model: str) -> bool:
        return self._show(model).get("ActiveState") in ALIVE or state.lock_is_held(root, model)

    def end(self, model: str) -> str:
        """How the unit ended, when it left no result."""
        shown = self._show(model)
        unit = command.unit_name(model)
        rc, log, _ = self._run(
            ["journalctl", "--unit", unit, "--lines", "3", "--output", "cat", "--no-pager"]
        )
        last = " / ".join(log.strip().splitlines()) if rc == 0 else ""
        how = shown.get("Result") or "unknown"
        if how == "success":  # the unit is gone, and its result with it
            how = "unknown"
        status = shown.get("ExecMainStatus", "?")
        return f"{unit} ended without a result ({how}, status {status}). {last}".strip()

    def _show(self, model: str) -> dict[str, str]:
        wanted = "--property=ActiveState,Result,ExecMainCode,ExecMainStatus"
        _, out, _ = self._run(["systemctl", "show", wanted, command.unit_name(model)])
        return dict(line.partition("=")[::2] for line in out.splitlines())


class Process:
    """A process of its own session, for a node whose init isn't systemd."""

    def __init__(self) -> None:
        self._last_words = ""

    def token_path(self, _model: str, token_file: str) -> str:
        """Root's own file: the stager's one capability is to read."""
        return token_file

    def start(self, model: str, argv: list[str], setting: command.Setting) -> None:
        """Return when it works, or has ended, or has said why it can't."""
        detached = ["setsid", "--fork", *command.setpriv(argv, user=setting.user)]
        with tempfile.TemporaryFile() as words:
            subprocess.run(
                detached, cwd=setting.folder, stdin=subprocess.DEVNULL, stdout=words, stderr=words, check=True
            )
            deadline = time.monotonic() + START_S
            while time.monotonic() < deadline:
                if state.lock_is_held(setting.root, model) or os.fstat(words.fileno()).st_size:
                    break
                time.sleep(0.01)
            words.seek(0)
            self._last_words = words.read().decode(errors="replace").strip()[-300:]

    def is_alive(self, root: str, model: str) -> bool:
        return state.lock_is_held(root, model)

    def end(self, model: str) -> str:
        return f"the stager of {model} ended without a result: {self._last_words or 'it was killed'}"


def hand_over(root: str, model: str, user: str) -> None:
    """Make the state folder, and give the stager's user what root has put there (a copy made by hand)."""
    folder = state.state_folder(root, model)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not user or os.geteuid() != 0:
        return
    owner = pwd.getpwnam(user)
    base = Path(root)
    ours = [
        folder.parent,
        folder,
        base / model,
        base / f"{model}.manifest.json",
        base / f"{model}.proof.json",
    ]
    for path in [*ours, *base.glob(f"{model}.partial-*")]:
        _give(path, owner.pw_uid, owner.pw_gid)


def _give(path: Path, uid: int, gid: int) -> None:
    """Only what root owns, and without following links: another user's files are nobody's to give."""
    if not os.path.lexists(path) or path.lstat().st_uid != 0:
        return
    os.chown(path, uid, gid, follow_symlinks=False)
    if path.is_dir() and not path.is_symlink() and path.name != ".model-stage":
        for inside in path.iterdir():
            _give(inside, uid, gid)


def choose(launcher: str, run: Run) -> Systemd | Process:
    """Systemd where it is the init; `auto` looks."""
    if launcher == "auto":
        launcher = "systemd" if Path("/run/systemd/system").is_dir() else "process"
    return Systemd(run) if launcher == "systemd" else Process()


def require_writable(root: str, user: str) -> None:
    """Whether the stager's user can publish in the root: seen before anything is made."""
    if not user:
        return
    found = Path(root).stat()
    try:
        owner = pwd.getpwnam(user)
        groups = os.getgrouplist(user, owner.pw_gid)
    except KeyError:  # it will be made, and own nothing
        owner, groups = None, []
    bit = 0o200 if owner and found.st_uid == owner.pw_uid else 0o020 if found.st_gid in groups else 0o002
    if not found.st_mode & bit and not (owner and owner.pw_uid == 0):
        raise StartError(
            f"{root} (uid {found.st_uid}, mode {found.st_mode & 0o777:o}) can't be written by the user {user}"
            ": change the folder's owner, or set model_stage_user"
        )


def ensure_user(user: str, run: Run, *, check_mode: bool) -> bool:
    """Whether the system user had to be made."""
    if not user:
        return False
    try:
        pwd.getpwnam(user)
    except KeyError:
        if check_mode:
            return True
        argv = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent"]
        rc, out, err = run([*argv, "--shell", "/usr/sbin/nologin", user])
        if rc:
            raise StartError(f"the user {user} could not be made: {(err or out).strip()}") from None
        return True
    return False


def ensure_folder(folder: Path, user: str, *, check_mode: bool) -> bool:
    """Whether a folder of the stager's user, not in memory, had to be made."""
    if folder.is_dir():
        return False
    if not check_mode:
        folder.mkdir(mode=0o755, parents=True)
        if user and os.geteuid() == 0:
            owner = pwd.getpwnam(user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
    return True
