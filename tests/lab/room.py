"""The private machine room: a command in its own namespaces with a pure cgroup2; nothing of it stays.

On a hybrid cgroup layout LXC boots but silently ignores `lxc.cgroup2.devices.*`; only a pure cgroup2 makes
the kernel's denial real. `/run` is a tmpfs of the room's own: the locks and sockets of two rooms never meet.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tests.lab import paths
from tests.lab.console import complain
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PREFIX = "recover-lab-"
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG = 1
SI_KERNEL = 0x80
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 15.0
_libc = ctypes.CDLL(None, use_errno=True)


def inside() -> bool:
    return paths.ROOM_MARK.exists()


def enter(command: Sequence[str]) -> int:
    """Run the command in a new room; its exit status. The room is gone afterwards, whatever happened."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, signal.SIGCHLD))
    root = cgroup2_root()
    with contextlib.ExitStack() as stack:
        # Held until somebody lives in our cgroup, so that no other room takes it for a dead one.
        lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        cgroup = _make_cgroup(root)
        stack.callback(_remove_cgroup, cgroup)
        settled_read, settled_write = os.pipe()
        me = os.getpid()
        child = os.fork()
        if child == 0:
            os.close(settled_read)
            _run_child(lambda: _make_namespaces(cgroup, command, me, settled_write))
        os.close(settled_write)
        os.read(settled_read, 1)  # ends when the child lives in its cgroup, or died
        os.close(settled_read)
        fcntl.flock(lock, fcntl.LOCK_UN)
        return _wait(child)


def _wait(child: int) -> int:
    """Wait for the child; pass on the signals that end us, and lose patience after a while."""
    deadline: float | None = None
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return _exit_code(status)
        if deadline is not None and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        info = signal.sigtimedwait((*ENDING, signal.SIGCHLD), 0.5)
        if info is None or info.si_signo == signal.SIGCHLD:
            continue
        deadline = time.monotonic() + GRACE_S
        # A terminal sends Ctrl-C to the whole group, so the command has it already; a `kill` reaches only us.
        if info.si_code != SI_KERNEL:
            os.kill(child, info.si_signo)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def cgroup2_root() -> Path:
    """The mounted cgroup2 hierarchy: /sys/fs/cgroup, or its `unified` part on a hybrid layout."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    raise LabError(
        "no cgroup2 hierarchy is mounted; boot this machine with systemd.unified_cgroup_hierarchy=1"
    )


def _make_cgroup(root: Path) -> Path:
    cgroup = root / f"{PREFIX}{os.getpid()}-{secrets.token_hex(3)}"
    try:
        for stale in root.glob(f"{PREFIX}*"):
            # An earlier room's controller got SIGKILL: its processes died with it, its cgroups stayed.
            if "populated 0" in (stale / "cgroup.events").read_text():
                _remove_cgroup(stale)
        (cgroup / "shell").mkdir(parents=True)
    except OSError as exc:
        raise LabError(f"cannot make {cgroup}: {exc.strerror}; the lab needs a writable cgroup2") from exc
    return cgroup


def _remove_cgroup(cgroup: Path) -> None:
    """Kill what lives in the cgroup, then remove it with everything below it."""
    with contextlib.suppress(FileNotFoundError):
        (cgroup / "cgroup.kill").write_text("1")
    for _ in range(100):
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if not cgroup.exists():
            return
        time.sleep(0.05)
    raise LabError(f"{cgroup} cannot be removed: a process in it does not die (see {cgroup}/cgroup.procs)")


def _run_child(main: Callable[[], int]) -> NoReturn:
    """Run the function in a forked child, which then leaves without the parent's exit handlers."""
    code = 70
    try:
        code = main()
    except (LabError, OSError, subprocess.SubprocessError) as exc:
        complain(f"cannot set up the room: {exc}")
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _make_namespaces(cgroup: Path, command: Sequence[str], parent: int, settled: int) -> int:
    """Make the namespaces and fork their first process; then only pass on signals and the exit status."""
    _die_with_parent()
    if os.getppid() != parent:
        return 70
    (cgroup / "cgroup.procs").write_text("0")
    _unshare(
        CLONE_NEWCGROUP
    )  # its root is the cgroup we are in now; nobody may stay there, or no controller works
    (cgroup / "shell" / "cgroup.procs").write_text("0")
    os.close(settled)
    _unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        _run_child(lambda: _init(command, cgroup.name))
    return _wait(child)


def _init(command: Sequence[str], name: str) -> int:
    """Be the room's first process: set it up, start the command, reap orphans, pass on signals."""
    _die_with_parent()
    _mounts(name)
    environment = {
        **os.environ,
        "LAB_ROOM": "1",
        # Else ssh's control sockets live in the home folder, shared with rooms that have the same addresses.
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(paths.STATE / "cp"),
    }
    try:
        process = subprocess.Popen(command, env=environment, preexec_fn=_unblock)  # noqa: PLW1509 (one thread only)
    except OSError as exc:
        complain(f"cannot run {command[0]}: {exc.strerror}")
        return 127
    while True:
        info = signal.sigwaitinfo((*ENDING, signal.SIGCHLD))
        if info.si_signo != signal.SIGCHLD:
            if info.si_code != SI_KERNEL:
                process.send_signal(info.si_signo)
            continue
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)  # the command is our child until we return
            if pid == process.pid:
                return _exit_code(status)
            if pid == 0:
                break


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*ENDING, signal.SIGCHLD))


def _mounts(name: str) -> None:
    _mount(None, "/", None, "rec,private")
    _mount("proc", "/proc", "proc", "nosuid,nodev,noexec")
    subprocess.run(["umount", "-R", "/sys/fs/cgroup"], check=True)
    _mount(
        "sysfs", "/sys", "sysfs", ""
    )  # a sysfs shows the network of its mounter; LXC looks up /sys/class/net/BRIDGE
    _mount("none", "/sys/fs/cgroup", "cgroup2", "")
    _mount("none", "/dev/shm", "tmpfs", "nosuid,nodev", "mode=1777")
    _mount("none", "/run", "tmpfs", "nosuid", "mode=0755,size=80%")
    for folder in (Path("/run/lock"), paths.STATE, paths.STATE / "cp"):
        folder.mkdir()
    paths.ROOM_MARK.write_text(f"{name}\n")
    _enable_controllers()
    socket.sethostname(
        name[:63]
    )  # part of the name of ssh's control sockets, so it differs from room to room
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def _enable_controllers() -> None:
    """Let the containers have what cgroup2 offers here: nothing on a hybrid layout, all on a pure one."""
    root = Path("/sys/fs/cgroup")
    for controller in (root / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text(f"+{controller}")


_FLAGS = {"nosuid": 2, "nodev": 4, "noexec": 8, "rec": 0x4000, "private": 0x40000}


def _mount(source: str | None, target: str, kind: str | None, flags: str, data: str | None = None) -> None:
    bits = sum(_FLAGS[flag] for flag in flags.split(",") if flag)
    texts = [text.encode() if text is not None else None for text in (source, target, kind)]
    if _libc.mount(*texts, ctypes.c_ulong(bits), data.encode() if data else None):
        error = ctypes.get_errno()
        raise OSError(error, f"mount {kind or 'private'} on {target}: {os.strerror(error)}")


def _unshare(flags: int) -> None:
    if _libc.unshare(flags):
        error = ctypes.get_errno()
        raise OSError(error, f"unshare {flags:#x}: {os.strerror(error)}")


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
