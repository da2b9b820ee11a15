"""One Debian tree for all machines, built once from this machine's own apt sources and kept in the cache.

A tree is named by the digest of its recipe, built aside and renamed when whole: a killed build is never
taken for a tree, and two builders wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import paths
from tests.lab.console import complain
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = (
    "ca-certificates",
    "dbus",
    "iproute2",
    "iputils-ping",
    "libgomp1",
    "lxc",
    "openssh-server",
    "procps",
    "python3",
    "python3-fusepy",
    "python3-venv",
    "sudo",
    "systemd",
    "systemd-sysv",
)
# lxc.service alone waits 30 s for a network at each boot; the timers would wake up during a measurement.
MASKED_UNITS = (
    "lxc.service lxc-net.service lxc-monitord.service console-getty.service getty.target apt-daily.timer "
    "apt-daily-upgrade.timer e2scrub_all.timer dpkg-db-backup.timer fstrim.timer"
)
CUSTOMIZE = (
    'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname; : > "$1"/etc/machine-id; mkdir -p "$1"/var/log/journal',
    f'chroot "$1" systemctl --quiet mask {MASKED_UNITS}',
)
UNWANTED_FILES = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
MINIMUM_FREE_MIB = 700


def os_release() -> dict[str, str]:
    return platform.freedesktop_os_release()


def recipe_digest() -> str:
    release = os_release()
    recipe = [release.get("ID"), release.get("VERSION_CODENAME"), platform.machine()]
    text = json.dumps([recipe, PACKAGES, CUSTOMIZE, UNWANTED_FILES])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tree_path() -> Path:
    return paths.cache_dir() / f"rootfs-{recipe_digest()}"


def ensure_tree() -> Path:
    """The tree of the present recipe; built first when the cache lacks it, which needs the network."""
    tree = tree_path()
    if tree.is_dir():
        return tree
    if ":" in str(tree) or "," in str(tree):
        raise LabError(
            f"LAB_CACHE={paths.cache_dir()}: overlayfs takes no ':' or ',' in a path; choose another folder"
        )
    if paths.ROOM_MARK.exists():
        raise LabError(
            f"{tree} is missing and the room has no network; run `python -m tests.lab fetch` outside first"
        )
    with _builder_lock(tree.parent):
        if not tree.is_dir():
            _build(tree)
    return tree


@contextmanager
def _builder_lock(cache: Path) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except PermissionError as exc:
        raise LabError(f"{cache} is not writable; run as root or set LAB_CACHE to a folder of yours") from exc


def _build(tree: Path) -> None:
    for leftover in tree.parent.glob("rootfs-*.partial*"):
        _remove_tree(leftover)
    free_mib = shutil.disk_usage(tree.parent).free // 2**20
    if free_mib < MINIMUM_FREE_MIB:
        raise LabError(
            f"{tree.parent} has {free_mib} MiB free, building the root filesystem needs {MINIMUM_FREE_MIB}"
        )
    complain(f"building the root filesystem {tree} (once, 30 to 150 s)")
    started = time.monotonic()
    partial = Path(tempfile.mkdtemp(prefix=f"{tree.name}.partial-", dir=tree.parent))
    partial.chmod(0o755)
    command = [
        # It dies with us, and in its own namespaces: whatever ends it, no mount or process stays.
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--dpkgopt=force-unsafe-io"),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in UNWANTED_FILES),
        f"--include={','.join(PACKAGES)}",
        *(f"--customize-hook={hook}" for hook in CUSTOMIZE),
        os_release()["VERSION_CODENAME"],
        str(partial),
        *apt_sources(),
    ]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode:
        _remove_tree(partial)
        tail = "\n".join(result.stderr.splitlines()[-12:])
        raise LabError(
            f"mmdebstrap failed ({result.returncode}); is the network up and `apt-get update` fine?\n{tail}"
        )
    subprocess.run(["sync", "--file-system", str(partial)], check=True)  # a power loss must not leave it half
    partial.rename(tree)
    complain(f"built in {time.monotonic() - started:.0f} s")


def apt_sources() -> list[str]:
    """This machine's own sources of its release as one-line entries; none means mmdebstrap's default."""
    release = os_release()
    wanted = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)"
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    keyring = _keyring(release.get("ID", ""))
    entries = []
    for line in listing.splitlines():
        uri, suite, component, origin = [*line.split(), "", "", "", ""][:4]
        if origin.lower() == release.get("ID") and suite.startswith(release["VERSION_CODENAME"]):
            entries.append(f"deb {keyring}{uri} {suite} {component}")
    return sorted(set(entries))


def _keyring(distribution: str) -> str:
    for suffix in ("gpg", "pgp"):
        path = Path(f"/usr/share/keyrings/{distribution}-archive-keyring.{suffix}")
        if path.exists():
            return f"[signed-by={path}] "
    return ""


def _remove_tree(tree: Path) -> None:
    mounted = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {tree}/" in line]
    if mounted:
        raise LabError(f"{tree} has something mounted in it; unmount it, then remove the folder")
    shutil.rmtree(tree)
