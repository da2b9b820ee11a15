"""The container's file apart from its rules: devN keys, id map, hook, and lines that Proxmox can't read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import access
from .case import Case, driver_of
from .cause import CUDA_RESULTS, NEEDS_PERSON, NOTE, REPAIRABLE, Finding, cause
from .evidence import text

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "container's file"
_IDMAP = re.compile(r"([ugb])\s+(\d+)\s+(\d+)\s+(\d+)")
WHOLE_RANGE = 65536
MOST_LINES = 3


@cause(
    "devn_and_mount_for_same_node",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="a devN key and a mount entry bring the same node: Proxmox can't start the container",
)
def devn_and_mount_for_same_node(case: Case) -> Iterator[Finding]:
    if case.container is None:
        return
    for key, value in sorted(case.container.devices.items()):
        for mount in case.container.mounts_for(value.path) if value.path else []:
            yield Finding(
                f"{case.node}'s file brings {value.path} in twice, by {key} and by the mount on line "
                f"{mount.line_no}: "
                f"it can't start like that.",
                {"key": key, "path": value.path, "mount_line": mount.line_no},
            )


@cause(
    "devn_without_host_node",
    group=GROUP,
    severity=REPAIRABLE,
    repair="make_nodes",
    about="a devN key names a node that the host does not have: the container does not start",
)
def devn_without_host_node(case: Case) -> Iterator[Finding]:
    if case.container is None:
        return
    known = {one.path for one in access.by_kind(case, access.HOST_MISSING, access.DRIVER_ABSENT)}
    for key, value in sorted(case.container.devices.items()):
        node = case.host_node(value.path) if value.path else None
        if node is None or text(node, "type") != "missing" or value.path in known:
            continue
        ours = value.path.startswith("/dev/nvidia") and case.loaded(driver_of(value.path)) is not False
        advice = "" if ours else f" Remove {key}, or load that device's driver."
        yield Finding(
            f"{key} of {case.node} names {value.path}, which {case.host_name} does not have: the container "
            f"will not "
            f"start.{advice}",
            {"key": key, "path": value.path, "host_node": dict(node), "status": case.container_state},
            severity="" if ours else NEEDS_PERSON,
            repair="" if ours else None,
        )


@cause(
    "devn_unreadable",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="a devN key has a value that Proxmox refuses (mode must be written 0666)",
)
def devn_unreadable(case: Case) -> Iterator[Finding]:
    for key, value in sorted(case.container.devices.items()) if case.container is not None else []:
        if value.complaint:
            complaint = " ".join(str(value.complaint).split())
            yield Finding(
                f"Proxmox can't read {key} of {case.node} ({complaint}).",
                {"key": key, "value": case.container.keys.get(key) if case.container else None},
            )


@cause(
    "idmap_incomplete",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="lxc.idmap is half-written: user and group ranges must both cover the container's ids without a "
    "gap",
    explains=CUDA_RESULTS | {"node_no_permission"},
)
def idmap_incomplete(case: Case) -> Iterator[Finding]:
    if case.container is None or not case.container.idmap:
        return
    problem = idmap_problem(case.container.idmap)
    if problem:
        yield Finding(
            f"lxc.idmap of {case.node} is half-written: {problem}.", {"idmap": case.container.idmap}
        )


def idmap_problem(lines: list[str]) -> str:
    """'' when user and group ids are both mapped from 0 upwards without gap or overlap."""
    ranges: dict[str, list[tuple[int, int]]] = {"u": [], "g": []}
    for line in lines:
        match = _IDMAP.fullmatch(line.strip())
        if not match:
            return f"{line!r} is not `u|g CONTAINER HOST COUNT`"
        for kind in "ug" if match.group(1) == "b" else match.group(1):
            ranges[kind].append((int(match.group(2)), int(match.group(4))))
    for kind, label in (("u", "user"), ("g", "group")):
        end = 0
        for first, count in sorted(ranges[kind]):
            if first != end:
                return f"{label} ids {min(end, first)} to {max(end, first) - 1} are mapped " + (
                    "not at all" if first > end else "twice"
                )
            end = first + count
        if end < WHOLE_RANGE:
            return f"{label} ids from {end} on are not mapped"
    return ""


@cause(
    "hook_style_container",
    group=GROUP,
    severity=NOTE,
    about="NVIDIA's LXC hook brings the devices in: libnvidia-container on the host decides, not mounts or "
    "devN",
)
def hook_style_container(case: Case) -> Iterator[Finding]:
    hook = case.container.nvidia_hook if case.container is not None else None
    if hook is not None:
        yield Finding(
            f"{case.node} gets its devices from the hook {hook.value}; mounts and devN entries are not "
            f"added to it.",
            {"line_no": hook.line_no, "hook": hook.value},
        )


@cause(
    "config_line_ignored_by_pve",
    group=GROUP,
    severity=NOTE,
    about="lines that Proxmox can't read: it ignores them now and deletes them at its next write",
)
def config_line_ignored_by_pve(case: Case) -> Iterator[Finding]:
    lines = case.container.config.ignored if case.container is not None else []
    if lines:
        listed = ", ".join(f"{line.line_no} ({line.text.strip()[:60]!r})" for line in lines[:MOST_LINES])
        more = f" and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
        yield Finding(
            f"Proxmox can't read line {listed}{more} of {case.node}'s file: it ignores that now and "
            f"deletes it at its "
            f"next write.",
            {"lines": [{"line_no": line.line_no, "text": line.text, "why": line.why} for line in lines]},
        )
