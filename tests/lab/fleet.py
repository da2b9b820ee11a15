"""Names, addresses and MAC addresses of the lab's machines: the same for the same size, on every run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

MAX_HOSTS = 9
MAX_NODES = 20
FIRST_VMID = 200
GPUS_PER_HOST = 2
ROOM_ADDRESS = "10.77.0.1"
ROOM_MAC = "bc:24:11:00:00:01"


@dataclass(frozen=True)
class Node:
    """A container that serves: `ct200`, vmid 200, on one host."""

    vmid: int
    host: str

    @property
    def name(self) -> str:
        return f"ct{self.vmid}"

    @property
    def address(self) -> str:
        return f"10.77.0.{20 + self.vmid - FIRST_VMID}"

    @property
    def mac(self) -> str:
        # A random MAC after each start would leave stale ARP entries behind: 31 s of silence.
        return f"bc:24:11:00:02:{self.vmid - FIRST_VMID:02x}"


@dataclass(frozen=True)
class Host:
    """A Proxmox VE machine: `pve`, `pve2`, …"""

    number: int
    nodes: tuple[Node, ...]

    @property
    def name(self) -> str:
        return host_name(self.number)

    @property
    def address(self) -> str:
        return f"10.77.0.{10 + self.number}"

    @property
    def mac(self) -> str:
        return f"bc:24:11:00:01:{self.number:02x}"


@dataclass(frozen=True)
class Fleet:
    hosts: tuple[Host, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for host in self.hosts for node in host.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.hosts) + tuple(node.name for node in self.nodes)

    @property
    def machines(self) -> tuple[Host | Node, ...]:
        return (*self.hosts, *self.nodes)

    @property
    def size(self) -> tuple[int, int]:
        """Hosts, and nodes on each."""
        return len(self.hosts), len(self.hosts[0].nodes)

    def host(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name:
                return host
        raise LabError(f"no host {name!r} in this lab; it has {', '.join(h.name for h in self.hosts)}")

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise LabError(f"no node {name!r} in this lab; it has {', '.join(n.name for n in self.nodes)}")


def host_name(number: int) -> str:
    return "pve" if number == 0 else f"pve{number + 1}"


def make_fleet(hosts: int = 1, nodes: int = 1) -> Fleet:
    """Lay out `hosts` hosts with `nodes` nodes on each; container ids are unique over all hosts."""
    if not 1 <= hosts <= MAX_HOSTS:
        raise LabError(f"--hosts {hosts}: the lab has room for 1 to {MAX_HOSTS} hosts")
    if not 1 <= nodes <= MAX_NODES:
        raise LabError(f"--nodes {nodes}: the lab has room for 1 to {MAX_NODES} nodes on each host")
    return Fleet(
        tuple(
            Host(
                number,
                tuple(Node(FIRST_VMID + number * nodes + i, host_name(number)) for i in range(nodes)),
            )
            for number in range(hosts)
        )
    )


def save_fleet(fleet: Fleet, path: Path, model: str = "tiny") -> None:
    hosts, nodes = fleet.size
    path.write_text(json.dumps({"hosts": hosts, "nodes": nodes, "model": model}) + "\n")


def load_fleet(path: Path) -> Fleet | None:
    """The fleet that `save_fleet` wrote; None when there is no lab."""
    try:
        size = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return make_fleet(size["hosts"], size["nodes"])


def load_model(path: Path) -> str:
    """The model that the running lab was brought up with."""
    try:
        model: str = json.loads(path.read_text())["model"]
    except FileNotFoundError:
        return "tiny"
    return model
