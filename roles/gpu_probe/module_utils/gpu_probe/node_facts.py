"""What a node (container) sees of its devices, memory and identity, apart from the GPU libraries.

Runs in nodes: standard library and Python 3.9 only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

from .reading import Reader, describe_node, errno_name, gpu_node_paths, real_path

NO_LIMIT = 1 << 60
SSH_PORT = ":0016"
LISTENING = "0A"
WHOLE_ID_RANGE = 4294967295


def required_paths(gpus: int) -> list[str]:
    """The nodes that CUDA opens, whatever else there may be."""
    return ["/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{index}" for index in range(gpus))]


def open_device_nodes(report: Callable[[str, Any], None], *, gpus: int, dev: str = "/dev") -> None:
    """open() each node, as the CUDA driver would. Runs in a child: opening a sick GPU can hang.

    Each node is reported before it is opened and again after, so that a hang names its node.
    """
    reader = Reader()
    paths = sorted({*gpu_node_paths(reader, dev), *required_paths(gpus)})
    report("unseen", reader.unseen)
    mounts = mount_options()
    for number, path in enumerate(paths):
        node = describe_node(path, dev)
        options = mounts.get(path) or mounts.get(path.rpartition("/")[0]) or mounts.get("/dev")
        if options is not None:
            node["mount_options"] = options
        if node["type"] != "directory" and "/dri/" not in path:
            report(f"node_{number}", dict(node, open="not finished"))
            node["open"] = try_open(str(real_path(path, dev)))
        report(f"node_{number}", node)


def try_open(path: str) -> str:
    """'ok', or the errno's name."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        return errno_name(exc.errno)
    os.close(descriptor)
    return "ok"


def tidy_nodes(found: dict[str, Any]) -> list[dict[str, Any]]:
    keys = [key for key in found if key.startswith("node_")]
    return [found[key] for key in sorted(keys, key=lambda key: int(key[5:]))]


def mount_options(path: str = "/proc/self/mounts") -> dict[str, str]:
    """Mount point → options; the last mount on a point is the one in force."""
    reader = Reader()
    found = {}
    for line in (reader.text(path) or "").splitlines():
        words = line.split()
        if len(words) > 3:  # noqa: PLR2004 - device, point, type, options
            found[words[1].replace("\\040", " ")] = words[3]
    return found


def shm_facts(reader: Reader, path: str = "/dev/shm") -> dict[str, Any]:  # noqa: S108 - it is what we measure
    facts: dict[str, Any] = {"path": path}
    try:
        room = os.statvfs(path)
    except OSError as exc:
        reader.missed(path, errno_name(exc.errno))
        return facts
    facts["total_bytes"] = room.f_blocks * room.f_frsize
    facts["free_bytes"] = room.f_bavail * room.f_frsize
    facts["mounted"] = os.path.ismount(path)
    options = mount_options().get(path)
    if options is not None:
        facts["options"] = options
    return facts


def memory_limit(
    reader: Reader, *, cgroup: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup"
) -> dict[str, Any]:
    """The tightest memory.max from this process's group up to the root that the container sees."""
    group = _own_group(reader, cgroup)
    tightest: int | None = None
    where: str | None = None
    folder = Path(root, group.lstrip("/"))
    for level in (folder, *folder.parents):
        if not level.is_relative_to(root):
            break
        text = reader.text(str(level / "memory.max"), optional=True)
        value = int(text) if text and text.strip().isdigit() else None
        if value is not None and value < NO_LIMIT and (tightest is None or value < tightest):
            tightest, where = value, str(level / "memory.max")
    return {"limit_bytes": tightest, "limit_path": where}


def _own_group(reader: Reader, path: str) -> str:
    for line in (reader.text(path) or "").splitlines():
        if line.startswith("0::"):
            return line[3:].replace("/..", "") or "/"
    return "/"


def id_map(reader: Reader, path: str = "/proc/self/uid_map") -> dict[str, Any]:
    """Whether root here is root on the host: then, and only then, device rules decide."""
    text = reader.text(path)
    if text is None:
        return {"uid_map": None, "unprivileged": None}
    rows = [[int(word) for word in line.split()] for line in text.splitlines() if line.strip()]
    return {"uid_map": rows, "unprivileged": rows != [[0, 0, WHOLE_ID_RANGE]]}


def cpu_facts() -> dict[str, Any]:
    return {"cpus": number_ranges(sorted(os.sched_getaffinity(0)))}


def number_ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 8] → '0-2,8', as the kernel writes a cpuset."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def network_facts(reader: Reader) -> dict[str, Any]:
    """Own addresses, and whether something listens for ssh: from /proc, since a node may lack every tool."""
    addresses = set()
    previous = ""
    for line in (reader.text("/proc/net/fib_trie", optional=True) or "").splitlines():
        if "/32 host LOCAL" in line and not previous.startswith("127."):
            addresses.add(previous)
        previous = line.replace("|--", "").strip()
    tables = (reader.text(f"/proc/net/{name}", optional=True) or "" for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    listening = any(row[1:2] and row[1].endswith(SSH_PORT) and row[3:4] == [LISTENING] for row in rows)
    return {"addresses": sorted(addresses), "sshd": listening}
