"""Device nodes in the container: missing, not a device, another device, closed by mode or id map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import access
from .cause import CUDA_RESULTS, NEEDS_PERSON, REPAIRABLE, Finding, cause
from .evidence import number, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .access import Access
    from .case import Case

GROUP = "nodes"


def _of_kind(case: Case, kind: str) -> list[Access]:
    return [one for one in access.judge_all(case) if one.kind == kind]


def _brought(case: Case, path: str) -> bool:
    return case.container is None or case.container.brings(path)


@cause(
    "node_missing",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="the node is missing in the container (ENOENT): no mount or devN brings it, or it came after the "
    "start",
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
            f"its file brings {'it' if len(paths) == 1 else 'them'} in, so it was started before the host "
            f"had "
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
    about="a regular file stands in place of the node (a mount of a missing node with "
    "`optional,create=file`)",
    explains=CUDA_RESULTS,
)
def node_not_a_device(case: Case) -> Iterator[Finding]:
    for one in _of_kind(case, access.NOT_A_DEVICE):
        brought = _brought(case, one.path)
        how = (
            "it was made when the container started without the host's node; a restart mounts the node "
            "over it"
            if brought
            else "nothing in its file brings the node in"
        )
        yield Finding(
            f"{one.path} in {case.node} is a {text(case.inside_node(one.path), 'type')}, not a character "
            f"device: {how}.",
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
            f"{one.path} in {case.node} has mode {mode}: root can open it, the engine's user can't (0666 "
            f"is needed).",
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
            f"Opening {one.path} in {case.node} gives {text(case.inside_node(one.path), 'open')}: no "
            f"driver answers "
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
            f"Opening {one.path} in {case.node} gives {text(case.inside_node(one.path), 'open')}: the "
            f"driver could "
            f"not start this GPU.",
            one.proof,
            device=one.path,
        )
