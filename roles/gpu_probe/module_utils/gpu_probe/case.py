"""One node to diagnose: evidence, container file and what was asked for, in the words of the causes.

Pure; runs on the controller.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .container import Container, read_container
from .evidence import dig, items, mapping, number, records, text, truth

if TYPE_CHECKING:
    from collections.abc import Mapping

GPU_NODE = re.compile(r"/dev/nvidia(\d+)")
# 195 is registered under the first of these that the driver's version uses.
CORE_DRIVERS = ("nvidia", "nvidia-frontend", "nvidiactl", "nvidia-modeset")
UVM = "nvidia-uvm"


@dataclass
class Case:
    """`host` and `inside` are raw evidence; `unseen` grows with every field that a cause wanted in vain."""

    node: str
    host_name: str
    vmid: int
    link: Mapping[str, Any]
    host: Mapping[str, Any]
    inside: Mapping[str, Any]
    expected_gpus: int = 0
    host_gpus: int = 0
    model_bytes: int = 0
    unseen: list[dict[str, str]] = field(default_factory=list)
    accesses: list[Any] = field(default_factory=list)  # access.judge_all keeps its answers here

    # What can be seen

    def miss(self, what: str, why: str) -> None:
        entry = {"what": what, "why": why}
        if entry not in self.unseen:
            self.unseen.append(entry)

    def need(self, where: str, *path: str) -> Any:  # noqa: ANN401 - evidence of any type
        """A field of `host`, `container` or `node`; noted as unseen when its part was read but lacks it."""
        tree = {"host": self.host, "container": self.container_facts, "node": self.inside}[where]
        value = dig(tree, *path)
        if value is None and tree:
            self.miss(f"{where}: {'.'.join(path)}", "not in the evidence")
        return value

    @functools.cached_property
    def container_facts(self) -> Mapping[str, Any]:
        return mapping(self.host, "containers", str(self.vmid))

    @functools.cached_property
    def container(self) -> Container | None:
        content = text(self.container_facts, "config_text")
        return read_container(content) if content is not None else None

    @property
    def container_state(self) -> str | None:
        return text(self.container_facts, "status", "state")

    @property
    def unprivileged(self) -> bool:
        if self.container is not None:
            return self.container.unprivileged
        return truth(self.inside, "unprivileged") is True

    # Majors and drivers of the running kernel

    @functools.cached_property
    def majors(self) -> dict[int, list[str]] | None:
        """Major → names by the host's /proc/devices; None when it was not seen."""
        if not isinstance(dig(self.host, "proc_devices"), (list, tuple)):
            return None
        found: dict[int, list[str]] = {}
        for row in items(self.host, "proc_devices"):
            if isinstance(row, (list, tuple)) and len(row) == 2:  # noqa: PLR2004 - major and name
                major, name = row
                if isinstance(major, int) and isinstance(name, str):
                    found.setdefault(major, []).append(name)
        return found

    def major_of(self, driver: str) -> int | None:
        names = CORE_DRIVERS if driver == "nvidia" else (driver,)
        for name in names:
            for major, registered in (self.majors or {}).items():
                if name in registered:
                    return major
        return None

    def loaded(self, driver: str) -> bool | None:
        """Whether a driver has a major now; None when /proc/devices was not seen."""
        if self.majors is None:
            return None
        return self.major_of(driver) is not None

    # GPUs and their nodes

    @functools.cached_property
    def pci_gpus(self) -> list[Mapping[str, Any]] | None:
        return records(self.host, "gpus") if isinstance(dig(self.host, "gpus"), (list, tuple)) else None

    @functools.cached_property
    def minors(self) -> list[int]:
        """The GPUs' node numbers on the host: by the driver's own list, else counted."""
        listed = [number(gpu, "minor") for gpu in records(self.host, "driver", "gpus")]
        known = sorted({minor for minor in listed if minor is not None and 0 <= minor < 256})  # noqa: PLR2004
        if known:
            return known
        wanted = self.host_gpus or self.expected_gpus
        there = len(self.pci_gpus) if self.pci_gpus else wanted
        return list(range(min(there, wanted or there, 256)))

    @functools.cached_property
    def wanted_gpu_paths(self) -> list[str]:
        """The GPU nodes it should have: those that its file names, filled up to the number asked for."""
        named = set()
        for path in self.container.named_paths() if self.container else ():
            match = GPU_NODE.fullmatch(path)
            if match:
                named.add(int(match.group(1)))
        wanted = sorted(minor for minor in named if minor in self.minors or not self.minors)
        for minor in self.minors:
            if len(wanted) < self.expected_gpus and minor not in wanted:
                wanted.append(minor)
        return [f"/dev/nvidia{minor}" for minor in sorted(wanted)]

    @property
    def wanted_paths(self) -> list[str]:
        return ["/dev/nvidiactl", *self.wanted_gpu_paths, "/dev/nvidia-uvm"]

    def host_node(self, path: str) -> Mapping[str, Any] | None:
        return _by_path(self.host, path)

    def inside_node(self, path: str) -> Mapping[str, Any] | None:
        return _by_path(self.inside, path)

    # CUDA

    @property
    def cu_init(self) -> int | None:
        return number(self.inside, "cuda", "cu_init")

    @property
    def cuda_status(self) -> str | None:
        return text(self.inside, "cuda", "status")

    @property
    def cuda_works(self) -> bool:
        return self.cuda_status == "ok" and self.cu_init == 0

    @property
    def all_gpus_work(self) -> bool:
        """Every expected GPU is there and has taken an allocation, so what the log tells of is over."""
        devices = records(self.inside, "cuda", "devices")
        proven = [one for one in devices if number(one, "allocation_result") == 0]
        return self.cuda_works and len(proven) >= max(1, self.expected_gpus)


def driver_of(path: str) -> str:
    """The driver behind a node's path, by its name in /proc/devices."""
    if path.startswith("/dev/nvidia-uvm"):
        return UVM
    if path.startswith("/dev/nvidia-caps-imex-channels/"):
        return "nvidia-caps-imex-channels"
    if path.startswith("/dev/nvidia-caps/"):
        return "nvidia-caps"
    if path.startswith("/dev/nvidia-nvswitch"):
        return "nvidia-nvswitch"
    return "nvidia"


def _by_path(tree: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    for node in records(tree, "device_nodes"):
        if text(node, "path") == path:
            return node
    return None
