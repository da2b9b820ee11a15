"""Device nodes in the container: missing, not a device, another device, closed by mode or id map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import access
from .cause import CUDA_RESULTS, NEEDS_PERSON, REPAIRABLE, Finding, cause, listed
from .evidence import number, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .access import Access
    from .case import Case

GROUP = "nodes"


def _groups(case: Case, kind: str, by: Callable[[Access], Any]) -> Iterator[tuple[Any, list[Access]]]:
    """Nodes with one fault, together where also the reason is the same: eight GPUs make one sentence."""
    groups: dict[Any, list[Access]] = {}
    for one in access.by_kind(case, kind):
        groups.setdefault(by(one), []).append(one)
    yield from groups.items()


def _paths(group: list[Access]) -> str:
    return listed([one.path for one in group])


def _proof(group: list[Access], **more: object) -> dict[str, Any]:
    return {"nodes": [one.proof for one in group], **more}


def _brought(case: Case, one: Access) -> bool:
    return case.container is None or case.container.brings(one.path)


def _by_device(case: Case, one: Access) -> bool:
    return case.container is not None and bool(case.container.devices_for(one.path))


def _inside(case: Case, one: Access, field: str) -> str:
    return text(case.inside_node(one.path), field) or "?"


@cause(
    "node_missing",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="the node is missing in the container (ENOENT): nothing brings it, or it came after the start",
    explains=CUDA_RESULTS,
)
def node_missing(case: Case) -> Iterator[Finding]:
    for brought, group in _groups(case, access.MISSING, lambda one: _brought(case, one)):
        one = len(group) == 1
        why = (
            f"its file brings {'it' if one else 'them'} in, so it was started before the host had "
            f"{'it' if one else 'them'}"
            if brought
            else f"no mount entry or devN of its file brings {'it' if one else 'them'} in"
        )
        yield Finding(
            f"{_paths(group)} {'is' if one else 'are'} missing in {case.node}: {why}.",
            _proof(group, brought_by_file=brought, cu_init=case.cu_init),
            repair="restart_container" if brought and case.container_state == "running" else "fix_config",
        )


@cause(
    "node_not_a_device",
    group=GROUP,
    severity=REPAIRABLE,
    repair="restart_container",
    about="a regular file stands in place of the node (mount of a missing node with `optional,create=file`)",
    explains=CUDA_RESULTS,
)
def node_not_a_device(case: Case) -> Iterator[Finding]:
    for brought, group in _groups(case, access.NOT_A_DEVICE, lambda one: _brought(case, one)):
        how = (
            "made when the container started without the host's node; a restart mounts the node over it"
            if brought
            else "and nothing in its file brings the node in"
        )
        kind, verb = _inside(case, group[0], "type"), "is" if len(group) == 1 else "are each"
        yield Finding(
            f"{_paths(group)} in {case.node} {verb} a {kind}, not a character device: {how}.",
            _proof(group, brought_by_file=brought),
            repair="" if brought else "fix_config",
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
    for brought, group in _groups(case, access.WRONG_DEVICE, lambda one: _brought(case, one)):
        inside, host = case.inside_node(group[0].path), case.host_node(group[0].path)
        yield Finding(
            f"{_paths(group)} in {case.node} is device {number(inside, 'major')}:{number(inside, 'minor')}, "
            f"on {case.host_name} it is {number(host, 'major')}:{number(host, 'minor')}: "
            + ("it was made at the last start." if brought else "it was made by hand, and no longer fits."),
            _proof(group, brought_by_file=brought),
            repair="" if brought else "fix_config",
        )


@cause(
    "node_no_permission",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="EACCES: the node's mode, the id map, or a `nodev` mount",
    explains=CUDA_RESULTS,
)
def node_no_permission(case: Case) -> Iterator[Finding]:
    for (why, repair), group in _groups(case, access.NO_PERMISSION, lambda one: _closed_by(case, one)):
        if not access.host_mode_is_narrow(case, group[0]):
            yield Finding(
                f"Opening {_paths(group)} in {case.node} gives EACCES: {why}.",
                _proof(group),
                severity=REPAIRABLE if repair else "",
                repair=repair,
            )


def _closed_by(case: Case, one: Access) -> tuple[str, str | None]:
    """The reason, and the repair where there is one."""
    mode = _inside(case, one, "mode")
    if "nodev" in _inside(case, one, "mount_options").split(","):
        return "its mount has the option nodev", None
    if case.unprivileged and _by_device(case, one):
        return f"its devN entry gives mode {mode}, mode=0666 is needed", "fix_config"
    if case.unprivileged:
        return f"mode {mode} and the id map leave nothing for the container's users", None
    return f"mode {mode}", None


@cause(
    "node_narrow_mode",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="root can open the node, the engine's own user can't (its mode in the container, as by devN)",
)
def node_narrow_mode(case: Case) -> Iterator[Finding]:
    for by_device, group in _groups(case, access.NARROW_MODE, lambda one: _by_device(case, one)):
        if not access.host_mode_is_narrow(case, group[0]):
            modes = listed(sorted({_inside(case, one, "mode") for one in group}))
            yield Finding(
                f"{_paths(group)} in {case.node} has mode {modes}: root can open it, the engine's user can't "
                f"(0666 is needed).",
                _proof(group),
                severity=REPAIRABLE if by_device else "",
                repair="fix_config" if by_device else "",
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
    for errno, group in _groups(case, access.NO_DRIVER, lambda one: _inside(case, one, "open")):
        yield Finding(
            f"Opening {_paths(group)} in {case.node} gives {errno}: no driver answers behind it.",
            _proof(group),
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
    hung = access.by_kind(case, access.HANGS)
    if hung:
        yield Finding(
            f"Opening {_paths(hung)} in {case.node} does not return: the driver hangs, and only a reboot of "
            f"{case.host_name} frees it.",
            _proof(hung),
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
    for errno, group in _groups(case, access.OPEN_FAILED, lambda one: _inside(case, one, "open")):
        yield Finding(
            f"Opening {_paths(group)} in {case.node} gives {errno}: the driver could not start this GPU.",
            _proof(group),
        )
