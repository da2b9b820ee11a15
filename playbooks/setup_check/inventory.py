"""Problems of an inventory, as sentences that say what was found, what was needed and what to do."""

from __future__ import annotations

import difflib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HOSTS, NODES = "pve_hosts", "nodes"
# Proxmox VE numbers its guests from 100 on.
LOWEST_VMID = 100

HostVars = dict[str, Any]


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` where a known word is close, else the known words."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(known)}" if known else ""


def inventory_problems(
    groups: Mapping[str, list[str]], hostvars: Mapping[str, HostVars], *, source: str
) -> list[str]:
    """Everything wrong with the hosts and nodes of an inventory; an empty list when it can be used."""
    hosts, nodes = groups.get(HOSTS, []), groups.get(NODES, [])
    if any(hostvars[name].get("inventory_is_example") for name in [*hosts, *nodes]):
        example = (
            f"{source} is still the example: put your own host and node in it, then delete its line"
            " inventory_is_example. (To see it all run without a fleet: ./run demo)"
        )
        return [example]
    problems = [
        f"{source}: the group {group} is empty or missing: {what} goes there"
        for group, members, what in (
            (HOSTS, hosts, "each Proxmox VE host"),
            (NODES, nodes, "each container that is benchmarked"),
        )
        if not members
    ]
    for name in hosts:
        problems += [f"{source}: host {name}: {problem}" for problem in _host_problems(hostvars[name])]
    for name in nodes:
        problems += [f"{source}: node {name}: {problem}" for problem in _node_problems(hostvars[name], hosts)]
    return problems + [f"{source}: {problem}" for problem in _doubles(nodes, hostvars)]


def _host_problems(variables: HostVars) -> list[str]:
    count = variables.get("gpu_count")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return [
            f"gpu_count is {_shown(count)}; the number of GPUs it must show is needed, as in gpu_count: 8"
        ]
    return []


def _node_problems(variables: HostVars, hosts: list[str]) -> list[str]:
    problems = []
    host = variables.get("pve_host")
    if not host:
        problems.append("pve_host is missing: name the Proxmox VE host it runs on, as in pve_host: kpro6")
    elif host not in hosts:
        problems.append(f"pve_host is {host!r}, which is not in the group {HOSTS}{nearest(str(host), hosts)}")
    vmid = variables.get("vmid")
    if not isinstance(vmid, int) or isinstance(vmid, bool) or vmid < LOWEST_VMID:
        problems.append(
            f"vmid is {_shown(vmid)}; the container's number from `pct list` is needed, as in vmid: 200"
        )
    return problems


def _doubles(nodes: list[str], hostvars: Mapping[str, HostVars]) -> list[str]:
    places: dict[tuple[object, object], list[str]] = defaultdict(list)
    addresses: dict[object, list[str]] = defaultdict(list)
    for name in nodes:
        places[hostvars[name].get("pve_host"), hostvars[name].get("vmid")].append(name)
        addresses[hostvars[name].get("ansible_host", name)].append(name)
    return [
        f"nodes {' and '.join(names)} are both vmid {vmid} of {host}: one container is one node"
        for (host, vmid), names in places.items()
        if len(names) > 1 and host and vmid
    ] + [
        f"nodes {' and '.join(names)} have the same address {address}"
        for address, names in addresses.items()
        if len(names) > 1
    ]


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)
