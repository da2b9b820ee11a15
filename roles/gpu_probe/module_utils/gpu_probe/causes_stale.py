"""Rules that grant too much, and containers in which rules decide nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.pve_lxc.rules import is_dynamic

from . import access
from .case import UVM, Case, driver_of
from .cause import CUDA_RESULTS, NEEDS_PERSON, NOTE, Finding, cause, listed, names
from .evidence import items, mapping, number, records, text

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "rules"
GPU_DRIVERS = ("drm", "fb", "kfd")


@cause(
    "stale_rule_grants_other_driver",
    group=GROUP,
    severity=NOTE,
    repair="fix_config",
    about="a rule left from an earlier boot now opens another driver's devices to the container",
)
def stale_rule_grants_other_driver(case: Case) -> Iterator[Finding]:
    if case.container is None or case.unprivileged or case.majors is None:
        return
    for rule, line in case.container.whole_rules():
        owners = case.majors.get(rule.major, [])
        if owners and _is_stale(case, rule.major, owners):
            was = [str(name) for name in items(case.host, "major_records", str(rule.major))]
            before = f", a major that was {', '.join(was)}'s" if was else ""
            yield Finding(
                f"Line {line.line_no} of {case.node}'s file allows major {rule.major}{before}; it is "
                f"{', '.join(owners)}'s now, so the container can open that driver's devices.",
                {"line_no": line.line_no, "major": rule.major, "driver_now": owners, "was": was},
            )


def _is_stale(case: Case, major: int, owners: list[str]) -> bool:
    """Once NVIDIA's by our records, or of a driver of which the file brings no node in: nobody meant it."""
    if any(name.startswith("nvidia") or name in GPU_DRIVERS for name in owners):
        return False
    return bool(items(case.host, "major_records", str(major))) or not _has_node_of(case, major)


def _has_node_of(case: Case, major: int) -> bool:
    """Whether the container's file brings in a device of this major: then the rule is meant."""
    brought = case.container.named_paths() if case.container is not None else set()
    return any(
        text(node, "path") in brought
        and (number(node, "major") == major or major in items(node, "majors_below"))
        for node in records(case.host, "device_nodes")
    )


@cause(
    "rules_for_unused_majors",
    group=GROUP,
    severity=NOTE,
    repair="fix_config",
    about="rules for dynamic majors that no driver has: left over or guessed; a later boot may give them "
    "to any driver",
)
def rules_for_unused_majors(case: Case) -> Iterator[Finding]:
    if case.container is None or case.unprivileged or case.majors is None:
        return
    if not (case.loaded("nvidia") and case.loaded(UVM)):
        return  # the major that seems unused may be the missing driver's
    unused = [
        major for major in case.container.allowed_majors() if is_dynamic(major) and major not in case.majors
    ]
    if unused:
        yield Finding(
            f"{case.node}'s rules allow {names(unused)}, which no driver has now; the next boot may give "
            f"{'it' if len(unused) == 1 else 'them'} to any driver.",
            {"majors": unused},
        )


@cause(
    "container_unprivileged",
    group=GROUP,
    severity=NOTE,
    about="the container is unprivileged: Proxmox allows all devices there, so device rules are never the "
    "cause",
)
def container_unprivileged(case: Case) -> Iterator[Finding]:
    if case.container is not None and case.unprivileged:
        yield Finding(
            f"{case.node} is unprivileged: device rules have no effect there and are left alone; nodes, "
            f"their mode "
            f"and the driver decide.",
            {
                "unprivileged": case.container.keys.get("unprivileged"),
                "idmap": case.container.idmap,
                "uid_map": mapping(case.inside).get("uid_map"),
            },
        )


@cause(
    "device_refused_unexplained",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="EPERM in an unprivileged container, where no rule can be the cause",
    explains=CUDA_RESULTS,
)
def device_refused_unexplained(case: Case) -> Iterator[Finding]:
    refused = access.by_kind(case, access.REFUSED_UNEXPLAINED)
    if refused:
        yield Finding(
            f"Opening {listed([one.path for one in refused])} is refused (EPERM) in {case.node}, which "
            f"is "
            f"unprivileged, so no device rule is the cause. Look at its AppArmor profile and lxc.cap.drop.",
            {"open": {one.path: "EPERM" for one in refused}, "driver": driver_of(refused[0].path)},
        )
