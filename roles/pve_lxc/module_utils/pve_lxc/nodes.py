"""The host's device nodes of the GPUs: which should be there, what is there instead, and how to mend it."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .errors import PveLxcError
from .rules import CORE_DRIVERS, UVM_DRIVER, parse_proc_devices
from .settings import DeviceValue
from .situation import DEVICE_KEY, Mount, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from .conf import Config

MODE = 0o666
UVM_NODES = ("nvidia-uvm", "nvidia-uvm-tools")
_GPU_NODE = re.compile(r"nvidia(\d+)", re.ASCII)
# Driver ("" for the core one, whose name differs by version) and minor, as NVIDIA's drivers fix them.
_FIXED = {
    "nvidiactl": ("", 255),
    "nvidia-modeset": ("", 254),
    "nvidia-uvm": (UVM_DRIVER, 0),
    "nvidia-uvm-tools": (UVM_DRIVER, 1),
    "nvidia-nvlink": ("nvidia-nvlink", 0),
    "nvidia-nvswitchctl": ("nvidia-nvswitch", 255),
}
_NUMBERED = (
    (_GPU_NODE, ""),
    (re.compile(r"nvidia-nvswitch(\d+)", re.ASCII), "nvidia-nvswitch"),
    (re.compile(r"nvidia-caps/nvidia-cap(\d+)", re.ASCII), "nvidia-caps"),
    (re.compile(r"nvidia-caps-imex-channels/channel(\d+)", re.ASCII), "nvidia-caps-imex-channels"),
)
_DEVICE_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.ASCII | re.MULTILINE)


@dataclass(frozen=True)
class HostNode:
    """A node the host should have. `major` is None while its driver isn't loaded."""

    name: str
    driver: str
    major: int | None
    minor: int


@dataclass(frozen=True)
class Finding:
    """What stands at a node's place. `action` is one of keep, make, replace, chmod, refuse, wait."""

    node: HostNode
    path: Path
    action: str
    why: str


def gpu_minors(driver_dir: Path, dev_dir: Path, expected: int) -> list[int]:
    """The minors of this host's GPUs by the driver's own word, else by the nodes there and the number."""
    texts = [path.read_text(errors="replace") for path in sorted(driver_dir.glob("gpus/*/information"))]
    told = [int(match.group(1)) for match in map(_DEVICE_MINOR.search, texts) if match]
    if told:
        return sorted(set(told))
    matches = (_GPU_NODE.fullmatch(path.name) for path in dev_dir.glob("nvidia*"))
    return sorted({int(match.group(1)) for match in matches if match} | set(range(expected)))


def host_nodes(proc_devices: str, minors: Sequence[int], named: Iterable[str] = ()) -> list[HostNode]:
    """The nodes that CUDA opens on a host with these GPUs, and others of NVIDIA's that a file names."""
    majors = {name: major for major, names in parse_proc_devices(proc_devices).items() for name in names}
    core = next((name for name in CORE_DRIVERS if name in majors), CORE_DRIVERS[0])
    usual = [*(f"nvidia{minor}" for minor in minors), "nvidiactl", *UVM_NODES]
    nodes = []
    for name in dict.fromkeys([*usual, *named]):
        driver, minor = _driver_and_minor(name, core)
        is_other_gpu = _GPU_NODE.fullmatch(name) and name not in usual
        if driver and not is_other_gpu:  # a node for a GPU that isn't there would only hide that
            nodes.append(HostNode(name, driver, majors.get(driver), minor))
    return nodes


def _driver_and_minor(name: str, core: str) -> tuple[str, int]:
    """Which driver makes a node of this name below /dev, and its minor; "" for none of NVIDIA's."""
    if name in _FIXED:
        driver, minor = _FIXED[name]
        return driver or core, minor
    for pattern, driver in _NUMBERED:
        match = pattern.fullmatch(name)
        if match:
            return driver or core, int(match.group(1))
    return "", 0


def named_in(config: Config) -> list[str]:
    """The names below /dev that a container's file gives to it, by a mount or by devN."""
    sources = [mount.source for mount in map(Mount.of, config.main.entries) if mount]
    keys = config.main.keys.items()
    sources += [DeviceValue(value).path for key, value in keys if DEVICE_KEY.fullmatch(key)]
    return [source[len("/dev/") :] for source in sources if source.startswith("/dev/")]


def container_nodes(
    nodes: Sequence[HostNode], dev_dir: Path, in_file: Sequence[str], expected: int
) -> list[Node]:
    """The nodes one container should have: those of the GPUs that its file names, or of all GPUs.

    Of all when the file names none, and when the container is expected to have as many as the host has.
    """
    gpus = [node.name for node in nodes if _GPU_NODE.fullmatch(node.name)]
    named = [name for name in gpus if name in in_file]
    chosen = named if named and expected != len(gpus) else gpus
    kept = (node for node in nodes if node.name in chosen or node.name not in gpus)
    return [_as_it_is(node, dev_dir / node.name) for node in kept]


def _as_it_is(node: HostNode, path: Path) -> Node:
    try:
        found = path.lstat()
    except OSError:
        return Node(f"/dev/{node.name}", node.driver, node.minor, exists=False)
    is_ours = stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == node.major
    minor = os.minor(found.st_rdev) if is_ours else node.minor
    return Node(f"/dev/{node.name}", node.driver, minor, exists=stat.S_ISCHR(found.st_mode))


def inspect(nodes: Sequence[HostNode], dev_dir: Path, *, replace_files: bool = False) -> list[Finding]:
    return [_inspect(node, dev_dir / node.name, replace_files=replace_files) for node in nodes]


def _inspect(node: HostNode, path: Path, *, replace_files: bool) -> Finding:
    if node.major is None:
        return Finding(node, path, "wait", f"{path}: its major isn't known until {node.driver} is loaded")
    try:
        found = path.lstat()
    except FileNotFoundError:
        return Finding(node, path, "make", f"{path} is missing")
    if stat.S_ISCHR(found.st_mode):
        return _inspect_device(node, path, found)
    kind = "regular file" if stat.S_ISREG(found.st_mode) else "folder" if path.is_dir() else "link or pipe"
    size = f" of {found.st_size} bytes" if stat.S_ISREG(found.st_mode) else ""
    may_go = replace_files and stat.S_ISREG(found.st_mode)
    why = f"{path} is a {kind}{size}, not a device"
    return Finding(node, path, "replace" if may_go else "refuse", why)


def _inspect_device(node: HostNode, path: Path, found: os.stat_result) -> Finding:
    """Of a GPU's own node the minor counts too: another one is another GPU."""
    major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
    if major != node.major or (_GPU_NODE.fullmatch(node.name) and minor != node.minor):
        why = f"{path} is {major}:{minor}, but {node.driver} is {node.major}:{node.minor}"
        return Finding(node, path, "replace", why)
    mode = stat.S_IMODE(found.st_mode)
    if mode & MODE != MODE:
        return Finding(node, path, "chmod", f"{path} has mode {mode:04o}, {MODE:04o} is needed")
    return Finding(node, path, "keep", f"{path} is right")


def helper_arguments(missing: Sequence[HostNode]) -> list[list[str]]:
    """How nvidia-modprobe makes these nodes: with -u it makes those of nvidia-uvm only."""
    uvm = [["-u", "-c", "0"]] if any(node.driver == UVM_DRIVER for node in missing) else []
    minors = [str(node.minor) for node in missing if node.driver in CORE_DRIVERS]
    return uvm + ([[part for minor in minors for part in ("-c", minor)]] if minors else [])


def put_right(
    findings: Sequence[Finding], dev_dir: Path, helper: Callable[[list[str]], object] | None
) -> None:
    """NVIDIA's helper goes first, since it knows its driver; what it leaves out is made here."""
    for finding in findings:
        if finding.action == "replace":
            _try(finding, finding.path.unlink)
    gone = [finding.node for finding in findings if finding.action in ("make", "replace")]
    if helper:
        for arguments in helper_arguments(gone):
            helper(arguments)
    for finding in inspect([finding.node for finding in findings], dev_dir):
        if finding.action in ("make", "replace"):
            _try(finding, partial(_make, finding.node, finding.path))
        elif finding.action == "chmod":
            _try(finding, partial(finding.path.chmod, MODE))


def _make(node: HostNode, path: Path) -> None:
    """Made beside its place and renamed there: nobody meets it with another mode."""
    path.parent.mkdir(exist_ok=True)  # of nvidia-caps
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # two repairs may run at once
    temporary.unlink(missing_ok=True)
    os.mknod(temporary, stat.S_IFCHR | MODE, os.makedev(node.major or 0, node.minor))
    temporary.chmod(MODE)  # mknod's mode went through the umask
    temporary.rename(path)


def _try(finding: Finding, work: Callable[[], object]) -> None:
    try:
        work()
    except OSError as exc:
        raise PveLxcError(f"{finding.why}, and it can't be mended: {exc.strerror}") from exc
