"""Device rules of a privileged container: missing, not in force, stale. An unprivileged one is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import access
from .case import UVM, Case
from .cause import CUDA_RESULTS, NEEDS_PERSON, REPAIRABLE, Finding, cause, listed, names
from .evidence import items, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .access import Access

GROUP = "rules"
# What cuInit makes of a refused device: no device, or unknown.
REFUSED_RESULTS = (100, 999)


def _refused(case: Case, *places: str) -> Iterator[tuple[int, list[Access]]]:
    """Majors that are refused with the first other place of their rule among `places`, and their nodes."""
    found: dict[int, list[Access]] = {}
    for one in access.by_kind(case, access.NOT_ALLOWED):
        if one.major is not None and one.place in places:
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
    paths = listed([one.path for one in refused])
    seen = any(text(case.inside_node(one.path), "open") == "EPERM" for one in refused)
    if not seen:
        return f"opening {paths} will be refused"
    result = f", so cuInit(0) is {case.cu_init}" if case.cu_init in REFUSED_RESULTS else ""
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
    about="the rule stands in a snapshot's section, where it does nothing (a line appended at the file's "
    "end)",
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
            f"The rule for major {major} ({refused[0].driver}) stands on line {place.line_no}, under "
            f"[pve:pending], "
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
            f"Line {place.line_no} ({place.value!r}) was meant to allow major {major} "
            f"({refused[0].driver}), but "
            f"Proxmox ignores it and deletes it at its next write: {_effect(case, refused)}.",
            _proof(case, refused),
        )


@cause(
    "rule_is_cgroup_v1",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="the rule is written for cgroup v1 (`lxc.cgroup.devices.allow`) and does nothing on Proxmox VE 7 "
    "and later",
    explains=CUDA_RESULTS,
)
def rule_is_cgroup_v1(case: Case) -> Iterator[Finding]:
    for major, refused in _refused(case, "v1"):
        place = refused[0].places[0]
        yield Finding(
            f"Line {place.line_no} allows major {major} ({refused[0].driver}) by lxc.cgroup.devices.allow, "
            f"which does "
            f"nothing since Proxmox VE 7 (lxc.cgroup2 is meant): {_effect(case, refused)}.",
            _proof(case, refused),
        )


@cause(
    "rule_refused_by_lxc",
    group=GROUP,
    severity=REPAIRABLE,
    repair="fix_config",
    about="LXC can't read a rule (hex major, comment behind it, double blank) and won't start the "
    "container with it",
    explains=CUDA_RESULTS,
)
def rule_refused_by_lxc(case: Case) -> Iterator[Finding]:
    if case.container is None or case.unprivileged:
        return
    for line in case.container.refused_rules():
        yield Finding(
            f"LXC can't read the rule {line.value!r} on line {line.line_no} (it wants exactly `c MAJOR:* "
            f"rwm`, a "
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
            f"The rule {place.value!r} on line {place.line_no} allows major {major} ({refused[0].driver}) "
            f"without both "
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
    denied = {one.major: one for one in access.by_kind(case, access.DENIED_ON_PURPOSE)}
    for major, one in denied.items():
        line = case.container.grants.denied_by(major) if case.container is not None else None
        if line is not None:
            yield Finding(
                f"Line {line.line_no} of {case.node}'s file denies major {major} ({one.driver}) on purpose "
                f"(`{line.key}: {line.value}`). Remove it if the GPU should work there.",
                dict(one.proof, line_no=line.line_no, line=f"{line.key}: {line.value}"),
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
    refused = access.by_kind(case, access.NOT_APPLIED)
    if refused and case.container is not None:
        by_device = all(case.container.devices_for(one.path) for one in refused)
        version = [one for one in items(case.host, "pve_version", "numbers") if isinstance(one, int)]
        can_hot_plug = by_device and version[:1] >= [9]
        paths = listed([one.path for one in refused])
        yield Finding(
            f"{case.node}'s file allows {paths} now, but the running container was started before that: "
            f"{_effect(case, refused)}.",
            _proof(case, refused),
            repair="hot_plug" if can_hot_plug else "",
        )
