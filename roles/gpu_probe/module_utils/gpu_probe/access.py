"""Why a device node can't be opened in the node: one answer per path, and the rule that it may hide.

Pure; runs on the controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .case import GPU_NODE, Case, driver_of
from .evidence import number, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .container import Container, Place

FINE = "fine"
UNKNOWN = "unknown"
# The host's own fault: what the node sees of this path is a consequence.
DRIVER_ABSENT = "driver_absent"
HOST_MISSING = "host_missing"
HOST_NOT_A_DEVICE = "host_not_a_device"
HOST_WRONG_DEVICE = "host_wrong_device"
# Between the host's node and the container.
NOT_ALLOWED = "not_allowed"
NOT_APPLIED = "not_applied"
DENIED_ON_PURPOSE = "denied_on_purpose"
REFUSED_UNEXPLAINED = "refused_unexplained"
MISSING = "missing"
NOT_A_DEVICE = "not_a_device"
WRONG_DEVICE = "wrong_device"
NO_PERMISSION = "no_permission"
NO_DRIVER = "no_driver"
HANGS = "hangs"
OPEN_FAILED = "open_failed"
NARROW_MODE = "narrow_mode"

OTHERS_READ_WRITE = 0o006
# With these, open() in the node says nothing about the rules.
_HIDES_RULES = (HOST_MISSING, HOST_NOT_A_DEVICE, HOST_WRONG_DEVICE, MISSING, NOT_A_DEVICE, WRONG_DEVICE)


@dataclass(frozen=True)
class Access:
    path: str
    kind: str
    driver: str
    major: int | None = None
    minor: int | None = None
    places: tuple[Place, ...] = ()
    proof: dict[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where a rule stands without being in force; '' when there is none."""
        return self.places[0].kind if self.places else ""


def judge_all(case: Case) -> list[Access]:
    """Worked out once for each case."""
    if not case.accesses:
        seen = [judge(case, path) for path in case.wanted_paths]
        case.accesses.extend([*seen, *filter(None, (_hidden_refusal(case, one) for one in seen))])
    found: list[Access] = case.accesses
    return found


def _hidden_refusal(case: Case, one: Access) -> Access | None:
    """The missing rule that would show only after the fault in front of it is mended: two faults, one run."""
    if one.kind not in _HIDES_RULES or one.major is None or case.container is None:
        return None
    if one.minor is None and case.container.grants.names(one.major):
        return None  # the node's own number isn't known, so a rule for one minor may be the right one
    kind, places = _by_rules(case, one.path, one.major, one.minor, opened=False)
    if kind not in (NOT_ALLOWED, DENIED_ON_PURPOSE):
        return None
    proof = {**one.proof, "allowed_majors": case.container.allowed_majors()}
    return Access(one.path, kind, one.driver, one.major, one.minor, tuple(places), proof)


def by_kind(case: Case, *kinds: str) -> list[Access]:
    return [one for one in judge_all(case) if one.kind in kinds]


def host_mode_is_narrow(case: Case, one: Access) -> bool:
    """A narrow mode on the host is the host's fault, whatever the container's node looks like."""
    node = case.host_node(one.path)
    return node is not None and not others_may(node)


def judge(case: Case, path: str) -> Access:
    driver = driver_of(path)
    host = case.host_node(path)
    inside = case.inside_node(path)
    proof: dict[str, Any] = {"path": path, "driver": driver}
    if host is not None:
        proof["host_node"] = dict(host)
    if inside is not None:
        proof["container_node"] = dict(inside)
    major, minor = case.major_of(driver), number(host, "minor")
    if major is not None:
        proof["major_now"] = major
    kind = _on_host(case, path, host, major)
    if kind:
        return Access(path, kind, driver, major, minor, proof=proof)
    if major is None:  # /proc/devices was not seen: the node's own number is the next best
        major = number(host, "major") if host is not None else number(inside, "major")
    kind = _inside(inside, host) if inside is not None else FINE
    if kind == "EPERM" or (kind == FINE and inside is None):
        kind, places = _by_rules(case, path, major, minor, opened=kind == "EPERM")
        if case.container is not None:
            proof["allowed_majors"] = case.container.allowed_majors()
        return Access(path, kind, driver, major, minor, tuple(places), proof)
    return Access(path, kind, driver, major, minor, proof=proof)


def _on_host(case: Case, path: str, host: Mapping[str, Any] | None, major: int | None) -> str:
    if case.loaded(driver_of(path)) is False:
        return DRIVER_ABSENT
    if not isinstance(case.host.get("device_nodes"), list):
        return ""
    if host is None or text(host, "type") == "missing":
        return HOST_MISSING
    if text(host, "type") != "char":
        return HOST_NOT_A_DEVICE if text(host, "type") else ""
    gpu = GPU_NODE.fullmatch(path)
    is_other_driver = major is not None and number(host, "major") not in (None, major)
    is_other_gpu = gpu is not None and number(host, "minor") not in (None, int(gpu[1]))
    return HOST_WRONG_DEVICE if is_other_driver or is_other_gpu else ""


def _inside(inside: Mapping[str, Any], host: Mapping[str, Any] | None) -> str:
    kind = text(inside, "type")
    if kind is None:
        return UNKNOWN
    opened = text(inside, "open")
    if kind == "missing":
        return NO_PERMISSION if text(inside, "error") == "EACCES" else MISSING
    if kind != "char":
        return NOT_A_DEVICE
    for part in ("major", "minor"):
        there, here = number(host, part), number(inside, part)
        if there is not None and here is not None and there != here:
            return WRONG_DEVICE
    if opened == "ok":
        return FINE if others_may(inside) else NARROW_MODE
    known = {
        None: UNKNOWN,
        "EPERM": "EPERM",
        "EACCES": NO_PERMISSION,
        "ENOENT": MISSING,
        "ENXIO": NO_DRIVER,
        "ENODEV": NO_DRIVER,
        "not finished": HANGS,
    }
    return known.get(opened, OPEN_FAILED)


def others_may(node: Mapping[str, Any]) -> bool:
    """The engine runs as a user of its own, so root's open() is not the whole answer."""
    mode = text(node, "mode")
    try:
        return mode is None or int(mode, 8) & OTHERS_READ_WRITE == OTHERS_READ_WRITE
    except ValueError:
        return True


def _by_rules(
    case: Case, path: str, major: int | None, minor: int | None, *, opened: bool
) -> tuple[str, list[Place]]:
    """EPERM (`opened`: seen for real; else foretold from the file, for a container that doesn't run)."""
    if case.unprivileged:
        return (REFUSED_UNEXPLAINED if opened else FINE), []
    container = case.container
    if container is None or major is None:
        return (NOT_ALLOWED if opened else UNKNOWN), []
    if _grants(container, path, major, minor):
        return (NOT_APPLIED if opened else FINE), []
    if container.grants.denied_by(major) is not None:
        return DENIED_ON_PURPOSE, []
    if not opened and not container.brings(path):
        return MISSING, []
    return NOT_ALLOWED, container.places_of(major)


def _grants(container: Container, path: str, major: int, minor: int | None) -> bool:
    """DevN brings its own rule at each start."""
    return bool(container.devices_for(path)) or bool(container.grants.open(major, minor))
