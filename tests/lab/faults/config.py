"""Faults in the container's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab import drivers
from tests.lab.errors import LabError
from tests.lab.faults import text

if TYPE_CHECKING:
    from tests.lab.faults.place import Place

LEGACY_RULE = "lxc.cgroup.devices.allow"


def uvm_rule_missing(place: Place) -> str:
    place.edit(lambda conf: text.without_rules(conf, place.uvm_major))
    place.restart()
    return f"removed the rule for nvidia-uvm's major {place.uvm_major}, restarted the container"


def snapshot_only_rule(place: Place) -> str:
    rule = text.rule(place.uvm_major)
    place.edit(
        lambda conf: text.with_snapshot(text.without_rules(conf, place.uvm_major), "before-driver", rule)
    )
    place.restart()
    return f"moved the rule for nvidia-uvm's major {place.uvm_major} into a snapshot, restarted the container"


def ignored_line(place: Place) -> str:
    rule = f" {text.rule(place.uvm_major)}"
    place.edit(lambda conf: text.with_lines(text.without_rules(conf, place.uvm_major), rule))
    place.restart()
    return f"put a blank before the rule for nvidia-uvm's major {place.uvm_major}, restarted the container"


def v1_rule(place: Place) -> str:
    rule = text.rule(place.uvm_major, LEGACY_RULE)
    place.edit(lambda conf: text.with_lines(text.without_rules(conf, place.uvm_major), rule))
    place.restart()
    return (
        f"wrote the rule for nvidia-uvm's major {place.uvm_major} as {LEGACY_RULE}, restarted the container"
    )


def stale_rule(place: Place) -> str:
    """The rule is for `misc`, which nvidia-uvm may have had; that driver shows under its own name."""
    misc = next((donor for donor in drivers.UVM_DONORS if donor.driver == "misc"), None)
    others = [donor for donor in drivers.usable_donors() if donor != misc]
    if misc is None or not others:
        raise LabError("no second stand-in for nvidia-uvm opens on this machine, so no rule can go stale")
    if place.uvm_major == misc.major:
        place.change_host(drivers.with_uvm(place.settings, str(others[0].major), drivers.usable_donors()))
    majors = [donor.major for donor in drivers.UVM_DONORS]
    place.edit(lambda conf: text.with_lines(text.without_rules(conf, *majors), text.rule(misc.major)))
    place.restart()
    return f"left a rule for major {misc.major}, which {misc.driver} has now, restarted the container"


def devn_missing_node(place: Place) -> str:
    vmid = place.node.vmid
    place.edit(lambda conf: text.with_lines(conf, "dev0: /dev/nvidia-modeset,mode=0666"))
    said = place.on_host(f"pct stop {vmid} 2>/dev/null; pct start {vmid} 2>&1; true").strip()
    return f"added dev0: /dev/nvidia-modeset; the container does not start: {said}"


def locked_container(place: Place) -> str:
    place.edit(lambda conf: text.with_lines(conf, "lock: backup"))
    return "put `lock: backup` into the container's file, as a backup that died does"
