"""Reading files and running commands without ever failing: what could not be seen is listed, never guessed.

Runs on hosts and nodes: standard library and Python 3.9 only.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

COMMAND_LIMIT_S = 8
START_FIELD = 19  # starttime, counted from behind the name


class Reader:
    """Reads the machine and remembers what it could not see."""

    def __init__(self) -> None:
        self.unseen: list[dict[str, str]] = []

    def missed(self, what: str, why: str) -> None:
        entry = {"what": what, "why": why}
        if entry not in self.unseen:
            self.unseen.append(entry)

    def text(self, path: str, *, optional: bool = False, limit: int = 1 << 20) -> str | None:
        """Return the file's text, or None. A missing `optional` file is an answer, not a blind spot."""
        try:
            with Path(path).open("rb") as stream:
                return stream.read(limit).decode("utf-8", "replace")
        except OSError as exc:
            if not (optional and exc.errno in (errno.ENOENT, errno.ENOTDIR)):
                self.missed(path, errno_name(exc.errno))
            return None

    def number(self, path: str, *, optional: bool = False) -> int | None:
        text = self.text(path, optional=optional)
        try:
            return int(text.strip()) if text is not None else None
        except ValueError:
            return None

    def names(self, path: str, *, optional: bool = False) -> list[str]:
        try:
            return sorted(entry.name for entry in Path(path).iterdir())
        except OSError as exc:
            if not (optional and exc.errno in (errno.ENOENT, errno.ENOTDIR)):
                self.missed(path, errno_name(exc.errno))
            return []

    def command(
        self, argv: list[str], *, limit_s: float = COMMAND_LIMIT_S, stdin: str = ""
    ) -> dict[str, Any]:
        """Run a command with a time limit; rc is None when it could not run or did not end."""
        # A user who isn't root has no sbin on the path, and a host without `pct` would be no Proxmox VE.
        path = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/local/sbin:/usr/sbin:/sbin"
        env = dict(os.environ, LC_ALL="C.UTF-8", LANG="C.UTF-8", PATH=path)
        try:
            done = subprocess.run(
                argv,
                input=stdin.encode(),
                capture_output=True,
                timeout=limit_s,
                check=False,
                env=env,
            )
        except FileNotFoundError:
            return {"rc": None, "stdout": "", "stderr": "no such command", "why": "not installed"}
        except subprocess.TimeoutExpired:
            return {"rc": None, "stdout": "", "stderr": "", "why": f"no answer within {limit_s:g} s"}
        except OSError as exc:
            return {"rc": None, "stdout": "", "stderr": str(exc), "why": errno_name(exc.errno)}
        return {
            "rc": done.returncode,
            "stdout": done.stdout.decode("utf-8", "replace"),
            "stderr": done.stderr.decode("utf-8", "replace"),
            "why": "",
        }


def errno_name(number: int | None) -> str:
    """EPERM for 1; the number itself where it has no name."""
    return errno.errorcode.get(number or 0, str(number))


def describe_node(path: str, dev: str = "/dev") -> dict[str, Any]:
    """Type, device number, mode and owner of one path (links followed, since open() follows them).

    `dev` is where /dev really is, so that a test can have one of its own.
    """
    try:
        found = real_path(path, dev).stat()
    except OSError as exc:
        return {"path": path, "type": "missing", "error": errno_name(exc.errno)}
    mode = found.st_mode
    kind = (
        "char"
        if stat.S_ISCHR(mode)
        else "block"
        if stat.S_ISBLK(mode)
        else "directory"
        if stat.S_ISDIR(mode)
        else "file"
        if stat.S_ISREG(mode)
        else "other"
    )
    node: dict[str, Any] = {
        "path": path,
        "type": kind,
        "mode": f"{stat.S_IMODE(mode):04o}",
        "uid": found.st_uid,
        "gid": found.st_gid,
    }
    if kind in ("char", "block"):
        node["major"] = os.major(found.st_rdev)
        node["minor"] = os.minor(found.st_rdev)
    if kind == "file":
        node["size"] = found.st_size
    return node


def real_path(path: str, dev: str) -> Path:
    return Path(dev) / Path(path).relative_to("/dev")


def gpu_node_paths(reader: Reader, dev: str = "/dev") -> list[str]:
    """Every path below /dev that belongs to a GPU driver: nvidia*, nvidia-caps/*, dri/*."""
    paths = [f"/dev/{name}" for name in reader.names(dev) if name.startswith("nvidia")]
    for folder in ("nvidia-caps", "nvidia-caps-imex-channels", "dri"):
        names = reader.names(f"{dev}/{folder}", optional=True)
        paths += [f"/dev/{folder}/{name}" for name in names if name != "by-path"]
    return sorted(paths)


def memory_facts(reader: Reader, path: str = "/proc/meminfo") -> dict[str, int]:
    """/proc/meminfo in bytes, the few values that a decision or a comparison needs."""
    wanted = ("MemTotal", "MemFree", "MemAvailable", "Shmem", "SwapTotal", "SwapFree", "HugePages_Total")
    found: dict[str, int] = {}
    for line in (reader.text(path) or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if name in wanted and words and words[0].isdigit():
            found[name] = int(words[0]) * (1024 if len(words) > 1 else 1)
    return found


def age_s(reader: Reader, pid: int, proc: str = "/proc") -> float | None:
    """Seconds since a process began; of pid 1: since this container did (/proc/uptime may be its host's)."""
    text = reader.text(f"{proc}/{pid}/stat")
    fields = text.rpartition(")")[2].split() if text else []  # the name before it may hold blanks
    if len(fields) <= START_FIELD:
        return None
    started = int(fields[START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - started, 1)


def identity_facts(reader: Reader) -> dict[str, Any]:
    """What names this boot of this machine."""
    boot = reader.text("/proc/sys/kernel/random/boot_id")
    system = os.uname()
    return {
        "hostname": system.nodename,
        "kernel": system.release,
        "boot_id": boot.strip() if boot else None,
        "uptime_s": age_s(reader, 1),
        "root": os.geteuid() == 0,
    }


def module_version(reader: Reader, path: str = "/proc/driver/nvidia/version") -> str | None:
    """The loaded kernel module's version: '550.54.15' out of the NVRM line."""
    text = reader.text(path, optional=True)
    for line in (text or "").splitlines():
        if line.startswith("NVRM version:"):
            for word in line.split():
                if word[:1].isdigit() and word.count(".") >= 1 and word.replace(".", "").isdigit():
                    return word
    return None
