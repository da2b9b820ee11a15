"""Which device rules a privileged container needs now, and which are left from an earlier boot.

The kernel picks most NVIDIA majors at boot, so a rule from before a reboot can name another driver's number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .errors import Refused
from .rules import ALLOW, DENY, DRM_DRIVER, Grants, is_dynamic, mended_rule, parse_rule, write_rule

if TYPE_CHECKING:
    from .conf import Entry
    from .situation import Node, Plan, Situation


def plan_rules(situation: Situation, plan: Plan) -> None:
    entries = _mend_rules(situation, plan)
    _allow_needed(situation, plan, entries)
    _drop_stale(situation, plan, entries)


def _allow_needed(situation: Situation, plan: Plan, entries: list[Entry]) -> None:
    grants = Grants(entries)
    for major, minors in _needed(situation, plan).items():
        names = situation.names(major)
        denied = grants.denied_by(major)
        if denied:
            raise Refused(
                f"line {denied.line_no} denies major {major} ({names}) on purpose: "
                f"`{denied.key}: {denied.value}`. Remove that line, or leave this container out"
            )
        rule = write_rule(major)
        plan.live_rules.append(rule)
        if not all(grants.open(major, minor) for minor in minors):
            plan.add(ALLOW, rule, f"allow major {major} ({names})")


def _mend_rules(situation: Situation, plan: Plan) -> list[Entry]:
    """The entries, with those rewritten that LXC refuses: with one such line the container doesn't start."""
    entries = []
    for entry in situation.entries:
        if entry.key not in (ALLOW, DENY) or parse_rule(entry.value):
            entries.append(entry)
            continue
        value = mended_rule(entry.value, situation.nvidia)
        if value:
            plan.replace(entry, value, f"rewrite line {entry.line_no}, which LXC refuses, as `{value}`")
            entries.append(replace(entry, value=value))
        else:
            plan.notes.append(
                f"line {entry.line_no} (`{entry.key}: {entry.value}`) stops LXC from starting the container, "
                "and what it should allow can't be told: correct or remove it"
            )
    return entries


def _needed(situation: Situation, plan: Plan) -> dict[int, list[int | None]]:
    """Majors to allow, each with the minors that must be open; None stands for all."""
    needed: dict[int, list[int | None]] = {}
    for major, names in situation.nvidia.items():
        nodes = [node for node in situation.nodes if node.driver in names]
        by_rule = [node.minor for node in nodes if not _by_device(situation, plan, node)]
        if by_rule:
            needed[major] = list(by_rule)
        elif not nodes and (plan.mode == "rules" or _is_mounted(situation, names)):
            needed[major] = [None]
    if any(f"{mount.source}/".startswith("/dev/dri/") for mount in situation.mounts):
        grants = Grants(situation.entries)
        drm = (major for major, names in situation.devices.items() if DRM_DRIVER in names)
        # Any rule for it is the operator's choice of cards; only its lack is a fault.
        needed.update({major: [None] for major in drm if not grants.names(major)})
    needed.update({major: [None] for major in situation.extra_majors if major not in needed})
    return needed


def _by_device(situation: Situation, plan: Plan, node: Node) -> bool:
    kept = set(situation.dev_keys_of(node)) - set(plan.edit.drop_keys)
    return plan.mode == "devices" or bool(kept)


def _is_mounted(situation: Situation, names: list[str]) -> bool:
    return any(mount.source == f"/dev/{name}" for mount in situation.mounts for name in names)


def _drop_stale(situation: Situation, plan: Plan, entries: list[Entry]) -> None:
    for entry in entries:
        rule = parse_rule(entry.value) if entry.key == ALLOW else None
        # Ours are all `c MAJOR:*`; a rule for one minor was written by someone for one device.
        if not rule or rule.type != "c" or rule.major is None or rule.minor is not None:
            continue
        if rule.major not in situation.nvidia and rule.major not in situation.extra_majors:
            _judge_old_rule(situation, plan, entry, rule.major)


def _judge_old_rule(situation: Situation, plan: Plan, entry: Entry, major: int) -> None:
    now = situation.devices.get(major, [])
    before = situation.records.get(str(major), [])
    is_now = f"{', '.join(now)}'s" if now else "unused"
    if before:
        was = f"was {', '.join(before)}'s by our records"
        plan.drop(entry, f"the rule for major {major}, which {was} and is {is_now} now")
    elif major in situation.former_majors:
        plan.drop(entry, f"the rule for major {major}, listed in pve_lxc_former_majors; it is {is_now} now")
    elif not now and is_dynamic(major):
        plan.drop(entry, f"the rule for major {major}, which no driver has now")
    elif now and is_dynamic(major):
        plan.notes.append(
            f"line {entry.line_no} allows major {major}, which is {is_now} now. Our records don't know it as "
            f"NVIDIA's, so it stays; if it was, set pve_lxc_former_majors: [{major}]"
        )
