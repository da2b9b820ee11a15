"""Device rules of a privileged container: missing, not in force, stale. An unprivileged one is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible.module_utils.pve_lxc.rules import is_dynamic

from .. import access
from ..access import Access
from ..case import UVM, Case, driver_of
from ..cause import CUDA_RESULTS, NEEDS_PERSON, NOTE, REPAIRABLE, Finding, cause, names
from ..evidence import items, mapping, number, records, text

GROUP = "rules"
# LXC allows these to every container: null, zero, random, tty, ptmx, pts, fuse, tun.
LXC_DEFAULTS = frozenset((1, 5, 10, 136))
GPU_DRIVERS = ("drm", "fb", "kfd")


def _refused(case: Case, *places: str) -> Iterator[tuple[int, list[Access]]]:
    """Majors that are refused with the first other place of their rule among `places`, and their nodes."""
    found: dict[int, list[Access]] = {}
    for one in access.judge_all(case):
        if one.kind == access.NOT_ALLOWED and one.major is not None and one.place in places:
            found.setdefault(one.major, []).append(one)
    yield from found.items()


def _proof(case: Case, refused: list[Access]) -> dict[str, Any]:
    first = refused[0]
    opened = {one.path: text(case.inside_node(one.path), "open") for one in refused}
    return {
        "driver": first.driver,
        "major_now": first.major,
        "major_from": text(case.host, "proc_devices_path"),
        "allowed_majors": first.proof.get("allowed_majors", []),
        "open": opened,
        "cu_init": case.cu_init,
        "config": text(case.container_facts, "config_path"),
        "places": [vars(place) for place in first.places],
    }


def _effect(case: Case, refused: list[Access]) -> str:
    """What follows: told as seen, or as it will be at the container's next start."""
    paths = " and ".join(one.path for one in refused)
    seen = any(text(case.inside_node(one.path), "open") == "EPERM" for one in refused)
    if not seen:
        return f"opening {paths} will be refused"
    result = f", so cuInit(0) is {case.cu_init}" if case.cu_init not in (None, 0) else ""
    return f"opening {paths} is refused (EPERM){result}"


@cause(
    "uvm_major_not_allowed",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="no rule of the (privileged) container allows the major that nvidia-uvm has now",
    explains=CUDA_RESULTS,
)
def uvm_major_not_allowed(case: Case) -> Iterator[Finding]:
    yield from _not_allowed(case, uvm=True)


@cause(
    "device_major_not_allowed",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="the same for another NVIDIA driver's major",
    explains=CUDA_RESULTS,
)
def device_major_not_allowed(case: Case) -> Iterator[Finding]:
    yield from _not_allowed(case, uvm=False)


def _not_allowed(case: Case, *, uvm: bool) -> Iterator[Finding]:
    for major, refused in _refused(case, ""):
        if (refused[0].driver == UVM) is uvm:
            allowed = refused[0].proof.get("allowed_majors")
            have = (
                f"{case.node}'s rules allow {names(allowed)}"
                if allowed is not None
                else "no rule of it is known"
            )
            yield Finding(
                f"{refused[0].driver} has major {major} now; {have}: {_effect(case, refused)}.",
                _proof(case, refused),
            )


@cause(
    "rule_only_in_snapshot",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="the rule stands in a snapshot's section, where it does nothing (a line appended at the file's end)",
    explains=CUDA_RESULTS,
)
def rule_only_in_snapshot(case: Case) -> Iterator[Finding]:
    for major, refused in _refused(case, "snapshot"):
        place = refused[0].places[0]
        yield Finding(
            f"The rule for major {major} ({refused[0].driver}) stands on line {place.line_no}, in snapshot "
            f"[{place.section}], not in the current config: {_effect(case, refused)}.",
            _proof(case, refused),
        )


@cause(
    "rule_only_pending",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="the rule stands under [pve:pending], where Proxmox does not read raw entries",
    explains=CUDA_RESULTS,
)
def rule_only_pending(case: Case) -> Iterator[Finding]:
    for major, refused in _refused(case, "pending"):
        place = refused[0].places[0]
        yield Finding(
            f"The rule for major {major} ({refused[0].driver}) stands on line {place.line_no}, under [pve:pending], "
            f"not in the current config: {_effect(case, refused)}.",
            _proof(case, refused),
        )


@cause(
    "rule_line_ignored_by_pve",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="Proxmox can't read the rule's line: it ignores it, and deletes it at its next write",
    explains=CUDA_RESULTS,
)
def rule_line_ignored_by_pve(case: Case) -> Iterator[Finding]:
    for major, refused in _refused(case, "ignored"):
        place = refused[0].places[0]
        yield Finding(
            f"Line {place.line_no} ({place.value!r}) was meant to allow major {major} ({refused[0].driver}), but "
            f"Proxmox ignores it and deletes it at its next write: {_effect(case, refused)}.",
            _proof(case, refused),
        )


@cause(
    "rule_is_cgroup_v1",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="the rule is written for cgroup v1 (`lxc.cgroup.devices.allow`) and does nothing on Proxmox VE 7 and later",
    explains=CUDA_RESULTS,
)
def rule_is_cgroup_v1(case: Case) -> Iterator[Finding]:
    for major, refused in _refused(case, "v1"):
        place = refused[0].places[0]
        yield Finding(
            f"Line {place.line_no} allows major {major} ({refused[0].driver}) by lxc.cgroup.devices.allow, which does "
            f"nothing since Proxmox VE 7 (lxc.cgroup2 is meant): {_effect(case, refused)}.",
            _proof(case, refused),
        )


@cause(
    "rule_refused_by_lxc",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="LXC can't read a rule (hex major, comment behind it, double blank) and won't start the container with it",
    explains=CUDA_RESULTS,
)
def rule_refused_by_lxc(case: Case) -> Iterator[Finding]:
    if case.container is None or case.unprivileged:
        return
    for line in case.container.refused_rules():
        yield Finding(
            f"LXC can't read the rule {line.value!r} on line {line.line_no} (it wants exactly `c MAJOR:* rwm`, a "
            f"decimal major, no comment), and will not start {case.node} with it.",
            {
                "line_no": line.line_no,
                "value": line.value,
                "config": text(case.container_facts, "config_path"),
            },
        )


@cause(
    "rule_without_write",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="the rule allows the major, but not both reading and writing",
    explains=CUDA_RESULTS,
)
def rule_without_write(case: Case) -> Iterator[Finding]:
    for major, refused in _refused(case, "narrow"):
        place = refused[0].places[0]
        yield Finding(
            f"The rule {place.value!r} on line {place.line_no} allows major {major} ({refused[0].driver}) without both "
            f"r and w: {_effect(case, refused)}.",
            _proof(case, refused),
        )


@cause(
    "major_denied_on_purpose",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="a `devices.deny` line of the container denies the major",
    explains=CUDA_RESULTS,
)
def major_denied_on_purpose(case: Case) -> Iterator[Finding]:
    for one in access.judge_all(case):
        if one.kind == access.DENIED_ON_PURPOSE and case.container is not None and one.major is not None:
            line = case.container.grants.denied_by(one.major)
            yield Finding(
                f"Line {line.line_no} of {case.node}'s file denies major {one.major} ({one.driver}) on purpose "
                f"(`{line.key}: {line.value}`). Remove it if the GPU should work there.",
                dict(one.proof, line_no=line.line_no, line=f"{line.key}: {line.value}"),
                device=one.path,
            )


@cause(
    "config_not_applied",
    group=GROUP,
    severity=REPAIRABLE,
    repair="restart_container",
    about="the file allows the device, but the running container was started before that",
    explains=CUDA_RESULTS,
)
def config_not_applied(case: Case) -> Iterator[Finding]:
    refused = [one for one in access.judge_all(case) if one.kind == access.NOT_APPLIED]
    if refused and case.container is not None:
        by_device = all(case.container.devices_for(one.path) for one in refused)
        version = [one for one in items(case.host, "pve_version", "numbers") if isinstance(one, int)]
        can_hot_plug = by_device and version[:1] >= [9]
        paths = " and ".join(one.path for one in refused)
        yield Finding(
            f"{case.node}'s file allows {paths} now, but the running container was started before that: "
            f"{_effect(case, refused)}.",
            _proof(case, refused),
            repair="hot_plug" if can_hot_plug else "",
        )


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
    """Ours from an earlier boot: recorded as NVIDIA's, or a dynamic number without a node of it in the container."""
    if any(name.startswith("nvidia") or name in GPU_DRIVERS for name in owners) or major in LXC_DEFAULTS:
        return False
    if items(case.host, "major_records", str(major)):
        return True
    return bool(is_dynamic(major)) and not _has_node_of(case, major)


def _has_node_of(case: Case, major: int) -> bool:
    """Whether the container's file brings in a device of this major: then the rule is meant."""
    brought = case.container.named_paths() if case.container is not None else set()
    return any(
        number(node, "major") == major and text(node, "path") in brought
        for node in records(case.host, "device_nodes")
    )


@cause(
    "rules_for_unused_majors",
    group=GROUP,
    severity=NOTE,
    repair="fix_config",
    about="rules for dynamic majors that no driver has: left over or guessed; a later boot may give them to any driver",
)
def rules_for_unused_majors(case: Case) -> Iterator[Finding]:
    if case.container is None or case.unprivileged or case.majors is None:
        return
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
    about="the container is unprivileged: Proxmox allows all devices there, so device rules are never the cause",
)
def container_unprivileged(case: Case) -> Iterator[Finding]:
    if case.container is not None and case.unprivileged:
        yield Finding(
            f"{case.node} is unprivileged: device rules have no effect there and are left alone; nodes, their mode "
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
    refused = [one for one in access.judge_all(case) if one.kind == access.REFUSED_UNEXPLAINED]
    if refused:
        yield Finding(
            f"Opening {' and '.join(one.path for one in refused)} is refused (EPERM) in {case.node}, which is "
            f"unprivileged, so no device rule is the cause. Look at its AppArmor profile and lxc.cap.drop.",
            {"open": {one.path: "EPERM" for one in refused}, "driver": driver_of(refused[0].path)},
        )
