"""Which lines a container's file needs so that the GPUs' nodes can be opened inside: worked out, not written.

Two ways to grant a device, never both for one node:

- rules: `lxc.cgroup2.devices.allow: c MAJOR:* rwm` with the majors of the running kernel, and bind mounts;
- devices: `devN: /dev/x,mode=0666`, resolved by Proxmox at each start, so immune to a changed major.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .errors import NotReady, Refused
from .plan_nodes import grant_by_devices, grant_by_mounts
from .plan_rules import plan_rules
from .rules import CORE_DRIVERS, UVM_DRIVER, parse_proc_devices
from .situation import DEVICE_KEY, Plan, Situation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .conf import Config
    from .situation import Node

DEVICES_SINCE = (8, 2)


def wanted(  # noqa: PLR0913 - each is an independent fact; bundling them would only hide that
    config: Config,
    proc_devices: str,
    grant: str,
    nodes: Sequence[Node],
    *,
    extra_majors: Iterable[int] = (),
    former_majors: Iterable[int] = (),
    records: Mapping[str, Sequence[str]] | None = None,
    pve_version: str = "",
) -> Plan:
    """The plan for one container. Raises Refused where there is no safe answer."""
    known = {major: list(names) for major, names in (records or {}).items()}
    situation = Situation(
        config,
        parse_proc_devices(proc_devices),
        list(nodes),
        list(extra_majors),
        set(former_majors),
        known,
    )
    _require_sense(situation)
    mode, reason = _choose(situation, grant, pve_version)
    plan = Plan(mode, reason, _new_records(situation))
    if mode == "devices":
        grant_by_devices(situation, plan)
    else:
        grant_by_mounts(situation, plan)
    if situation.is_unprivileged:
        plan.notes.append(
            "unprivileged container: Proxmox allows it every device, so its rules are left alone"
        )
    else:
        plan_rules(situation, plan)
    return plan


def _require_sense(situation: Situation) -> None:
    keys = situation.config.main.keys
    if all(DEVICE_KEY.fullmatch(key) for key in keys):
        raise Refused("it has no settings at all: is this a container's file, or has it been emptied?")
    if "lock" in keys:
        raise Refused(f"the container is locked ({keys['lock']}): wait until that ends, or see `pct unlock`")
    if keys.get("template") == "1":
        raise Refused("it is a template, which never runs: there is nothing to repair")
    names = {name for names in situation.nvidia.values() for name in names}
    if not names.intersection(CORE_DRIVERS):
        raise NotReady("/proc/devices has no nvidia: the driver isn't loaded, so no major can be known")
    if UVM_DRIVER not in names:
        raise NotReady(
            "/proc/devices has no nvidia-uvm, so its major isn't known: load it first (load_modules)"
        )


def _choose(situation: Situation, grant: str, pve_version: str) -> tuple[str, str]:
    if grant == "devices" and situation.hook:
        raise Refused(
            "a hook makes the nodes in this container (lxc.hook.mount), devN would make them again: "
            "set pve_lxc_grant to rules or auto"
        )
    return (grant, "as asked for") if grant != "auto" else _choose_by_file(situation, pve_version)


def _choose_by_file(situation: Situation, pve_version: str) -> tuple[str, str]:
    if situation.hook:
        return "rules", "a hook makes the nodes in this container"
    if any(situation.mount_of(node) for node in situation.nodes):
        return "rules", "the file mounts these nodes"
    if any(value.path.startswith("/dev/nvidia") for value in situation.dev_keys.values()):
        return "devices", "the file has devN entries for these nodes"
    if pve_version and version_of(pve_version) >= DEVICES_SINCE:
        return "devices", f"Proxmox VE {pve_version} resolves devN at each start"
    return "rules", f"Proxmox VE {pve_version or 'of unknown version'} may not know devN"


def _new_records(situation: Situation) -> dict[str, list[str]]:
    """Every major that was NVIDIA's on this host since we look, with the drivers' names."""
    records = {major: list(names) for major, names in situation.records.items()}
    for major, names in situation.nvidia.items():
        known = records.setdefault(str(major), [])
        known.extend(name for name in names if name not in known)
    return records


def version_of(text: str) -> tuple[int, ...]:
    """`8.2.4` as (8, 2); of an unknown version nothing, which is older than any."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
