"""Device nodes in the container: missing, not a device, another device, closed by mode or id map."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .. import access
from ..access import Access
from ..case import Case, driver_of
from ..cause import CUDA_RESULTS, NEEDS_PERSON, NOTE, REPAIRABLE, Finding, cause
from ..evidence import number, text

GROUP = "nodes"
_IDMAP = re.compile(r"([ugb])\s+(\d+)\s+(\d+)\s+(\d+)")
WHOLE_RANGE = 65536


def _of_kind(case: Case, kind: str) -> list[Access]:
    return [one for one in access.judge_all(case) if one.kind == kind]


def _brought(case: Case, path: str) -> bool:
    return case.container is None or case.container.brings(path)


@cause(
    "node_missing",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="the node is missing in the container (ENOENT): no mount or devN brings it, or it came after the start",
    explains=CUDA_RESULTS,
)
def node_missing(case: Case) -> Iterator[Finding]:
    missing = _of_kind(case, access.MISSING)
    for brought in (False, True):
        paths = [one.path for one in missing if _brought(case, one.path) is brought]
        if not paths:
            continue
        listed, stand = ", ".join(paths), "is" if len(paths) == 1 else "are"
        why = (
            f"its file brings {'it' if len(paths) == 1 else 'them'} in, so it was started before the host had "
            f"{'it' if len(paths) == 1 else 'them'}"
            if brought
            else f"no mount entry or devN of its file brings {'it' if len(paths) == 1 else 'them'} in"
        )
        yield Finding(
            f"{listed} {stand} missing in {case.node}: {why}.",
            {"missing": paths, "brought_by_file": brought, "cu_init": case.cu_init},
            repair="restart_container" if brought and case.container_state == "running" else "fix_config",
        )


@cause(
    "node_not_a_device",
    group=GROUP,
    severity=REPAIRABLE,
    repair="restart_container",
    about="a regular file stands in place of the node (a mount of a missing node with `optional,create=file`)",
    explains=CUDA_RESULTS,
)
def node_not_a_device(case: Case) -> Iterator[Finding]:
    for one in _of_kind(case, access.NOT_A_DEVICE):
        brought = _brought(case, one.path)
        how = (
            "it was made when the container started without the host's node; a restart mounts the node over it"
            if brought
            else "nothing in its file brings the node in"
        )
        yield Finding(
            f"{one.path} in {case.node} is a {text(case.inside_node(one.path), 'type')}, not a character device: {how}.",
            one.proof,
            repair="" if brought else "fix_config",
            device=one.path,
        )


@cause(
    "node_wrong_device",
    group=GROUP,
    severity=REPAIRABLE,
    repair="restart_container",
    about="the node in the container has another major or minor than the host's",
    explains=CUDA_RESULTS,
)
def node_wrong_device(case: Case) -> Iterator[Finding]:
    for one in _of_kind(case, access.WRONG_DEVICE):
        inside, host = case.inside_node(one.path), case.host_node(one.path)
        brought = _brought(case, one.path)
        yield Finding(
            f"{one.path} in {case.node} is device {number(inside, 'major')}:{number(inside, 'minor')}, on "
            f"{case.host_name} it is {number(host, 'major')}:{number(host, 'minor')}"
            + (
                ": it was made at the last start."
                if brought
                else ": it was made by hand, and no longer fits."
            ),
            one.proof,
            repair="" if brought else "fix_config",
            device=one.path,
        )


@cause(
    "node_no_permission",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="EACCES: the node's mode, the id map, or a `nodev` mount",
    explains=CUDA_RESULTS,
)
def node_no_permission(case: Case) -> Iterator[Finding]:
    for one in _of_kind(case, access.NO_PERMISSION):
        inside = case.inside_node(one.path)
        options = (text(inside, "mount_options") or "").split(",")
        by_device = case.container is not None and bool(case.container.devices_for(one.path))
        if "nodev" in options:
            why, repair = "its mount has the option nodev", None
        elif case.unprivileged and by_device:
            why, repair = (
                f"its devN entry gives mode {text(inside, 'mode')}, mode=0666 is needed",
                "fix_config",
            )
        elif case.unprivileged:
            why = f"mode {text(inside, 'mode')} and the id map leave nothing for the container's users"
            repair = None
        else:
            why, repair = f"mode {text(inside, 'mode')}", None
        yield Finding(
            f"Opening {one.path} in {case.node} gives EACCES: {why}.",
            one.proof,
            severity=REPAIRABLE if repair else "",
            repair=repair,
            device=one.path,
        )


@cause(
    "node_narrow_mode",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="root can open the node, the engine's own user can't (the node's mode in the container)",
)
def node_narrow_mode(case: Case) -> Iterator[Finding]:
    for one in _of_kind(case, access.NARROW_MODE):
        mode = text(case.inside_node(one.path), "mode")
        by_device = case.container is not None and bool(case.container.devices_for(one.path))
        yield Finding(
            f"{one.path} in {case.node} has mode {mode}: root can open it, the engine's user can't (0666 is needed).",
            one.proof,
            severity="" if by_device else NEEDS_PERSON,
            repair="" if by_device else None,
            device=one.path,
        )


@cause(
    "device_without_driver",
    group=GROUP,
    severity=REPAIRABLE,
    repair="load_modules",
    about="ENXIO or ENODEV: the node is there and allowed, but no driver answers behind it",
    explains=CUDA_RESULTS,
)
def device_without_driver(case: Case) -> Iterator[Finding]:
    for one in _of_kind(case, access.NO_DRIVER):
        yield Finding(
            f"Opening {one.path} in {case.node} gives {text(case.inside_node(one.path), 'open')}: no driver answers "
            f"behind it.",
            one.proof,
            device=one.path,
        )


@cause(
    "device_open_hangs",
    group=GROUP,
    severity=REPAIRABLE,
    repair="reboot_host",
    about="opening the node does not return: the driver hangs",
    explains=CUDA_RESULTS | {"cuda_timeout"},
)
def device_open_hangs(case: Case) -> Iterator[Finding]:
    hung = [one for one in access.judge_all(case) if one.kind == access.HANGS]
    if hung:
        yield Finding(
            f"Opening {hung[0].path} in {case.node} does not return: the driver hangs, and only a reboot of "
            f"{case.host_name} frees it.",
            hung[0].proof,
        )


@cause(
    "device_open_failed",
    group=GROUP,
    severity=REPAIRABLE,
    repair="reboot_host",
    about="opening the node fails in another way (EIO: the driver could not start the GPU)",
    explains=CUDA_RESULTS,
)
def device_open_failed(case: Case) -> Iterator[Finding]:
    for one in _of_kind(case, access.OPEN_FAILED):
        yield Finding(
            f"Opening {one.path} in {case.node} gives {text(case.inside_node(one.path), 'open')}: the driver could "
            f"not start this GPU.",
            one.proof,
            device=one.path,
        )


@cause(
    "devn_and_mount_for_same_node",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="a devN key and a mount entry bring the same node: Proxmox can't start the container",
    explains=frozenset(("node_missing",)),
)
def devn_and_mount_for_same_node(case: Case) -> Iterator[Finding]:
    if case.container is None:
        return
    for key, value in sorted(case.container.devices.items()):
        for mount in case.container.mounts_for(value.path) if value.path else []:
            yield Finding(
                f"{case.node}'s file brings {value.path} in twice, by {key} and by the mount on line {mount.line_no}: "
                f"it can't start like that.",
                {"key": key, "path": value.path, "mount_line": mount.line_no},
                device=value.path,
            )


@cause(
    "devn_without_host_node",
    group=GROUP,
    severity=REPAIRABLE,
    repair="make_nodes",
    about="a devN key names a node that the host does not have: the container does not start",
    explains=frozenset(("node_missing",)),
)
def devn_without_host_node(case: Case) -> Iterator[Finding]:
    if case.container is None:
        return
    for key, value in sorted(case.container.devices.items()):
        node = case.host_node(value.path) if value.path else None
        if node is None or text(node, "type") != "missing":
            continue
        ours = value.path.startswith("/dev/nvidia") and case.loaded(driver_of(value.path)) is not False
        advice = "" if ours else f" Remove {key}, or load that device's driver."
        yield Finding(
            f"{key} of {case.node} names {value.path}, which {case.host_name} does not have: the container will not "
            f"start.{advice}",
            {"key": key, "path": value.path, "host_node": dict(node), "status": case.container_state},
            severity="" if ours else NEEDS_PERSON,
            repair="" if ours else None,
            device=value.path,
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
    about="lxc.idmap is half-written: user and group ranges must both cover the container's ids without a gap",
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
    about="NVIDIA's LXC hook brings the devices in: libnvidia-container on the host decides, not mounts or devN",
)
def hook_style_container(case: Case) -> Iterator[Finding]:
    hook = case.container.nvidia_hook if case.container is not None else None
    if hook is not None:
        yield Finding(
            f"{case.node} gets its devices from the hook {hook.value}; mounts and devN entries are not added to it.",
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
        listed = ", ".join(f"{line.line_no} ({line.text.strip()[:60]!r})" for line in lines[:3])
        more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""  # noqa: PLR2004 - as many as are listed
        yield Finding(
            f"Proxmox can't read line {listed}{more} of {case.node}'s file: it ignores that now and deletes it at its "
            f"next write.",
            {"lines": [{"line_no": line.line_no, "text": line.text, "why": line.why} for line in lines]},
        )
