"""The faults that `break` makes, each a row of a table; each says what it did."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.lab import drivers, machines, paths
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.fleet import Host, Node


@dataclass(frozen=True)
class Place:
    """The node that is to be broken, its host, and the host's settings."""

    node: Node
    host: Host
    settings: drivers.Settings

    @property
    def conf(self) -> str:
        return f"/etc/pve/lxc/{self.node.vmid}.conf"

    def on_host(self, command: str) -> str:
        return machines.ssh_checked(self.host.name, command, timeout_s=120)

    def on_node(self, command: str) -> str:
        return machines.ssh_checked(self.node.name, command)

    def restart(self) -> None:
        vmid = self.node.vmid
        self.on_host(f"pct stop {vmid} 2>/dev/null; pct start {vmid}")
        machines.wait_for(self.node.name)


@dataclass(frozen=True)
class Fault:
    text: str
    make: Callable[[Place], str]


def make(name: str, node: Node, host: Host) -> str:
    """Make the fault and say what was done, in a sentence."""
    if name not in FAULTS:
        raise LabError(f"no fault {name!r}; there are: {', '.join(FAULTS)}")
    place = Place(node, host, drivers.load_settings(paths.settings_dir(host.name)))
    return f"{host.name}/{node.name}: {FAULTS[name].make(place)}"


def _edit(place: Place, program: str) -> None:
    """Run a sed program on the container's file, by a temporary file and a rename as pmxcfs wants it."""
    conf = place.conf
    place.on_host(f"sed {shlex.quote(program)} {conf} > {conf}.tmp && mv {conf}.tmp {conf}")


def _rule(major: int) -> str:
    return f"lxc.cgroup2.devices.allow: c {major}:* rwm"


def _drop_rules(place: Place, *majors: int) -> None:
    _edit(place, "".join(f"/^lxc.cgroup2.devices.allow: c {major}:/d;" for major in majors))


def _uvm_rule_missing(place: Place) -> str:
    _drop_rules(place, place.settings.uvm.major)
    place.restart()
    return f"removed the rule for nvidia-uvm's major {place.settings.uvm.major}, restarted the container"


def _uvm_major_moved(place: Place) -> str:
    settings = drivers.with_uvm(place.settings, "new", drivers.usable_donors())
    drivers.save_settings(settings, paths.settings_dir(place.host.name))
    machines.reboot(place.host)
    machines.wait_for_all((place.host,))
    return (
        f"rebooted the host; nvidia-uvm moved from major {place.settings.uvm.major} to {settings.uvm.major}"
    )


def _device_node_missing(place: Place) -> str:
    place.on_host("rm -f /dev/nvidia-uvm /dev/nvidia-uvm-tools")
    place.restart()
    return "removed /dev/nvidia-uvm and /dev/nvidia-uvm-tools on the host, restarted the container"


def _staged_model_truncated(place: Place) -> str:
    listing = place.on_node("find /dev/shm -mindepth 2 -type f -size +64k -printf '%s %p\\n' | sort -rn")
    found = listing.partition("\n")[0].partition(" ")[2]
    if not found:
        raise LabError(f"{place.node.name}: no staged model under /dev/shm; stage one first")
    place.on_node(f"truncate -s -4096 {shlex.quote(found)}")
    return f"cut 4096 bytes off {found}"


def _engine_unit_model_path(place: Place) -> str:
    # An engine whose launcher reads the description has the path there and none in its unit.
    files = place.on_node(
        "grep -l /dev/shm/ /etc/systemd/system/inference-*.service "
        "/etc/inference-server/configurations/*.json 2>/dev/null | head -n 100; true"
    ).split()
    if not files:
        raise LabError(
            f"{place.node.name}: no deployed engine unit names a model under /dev/shm; deploy first"
        )
    place.on_node(f"sed -i 's#/dev/shm/#/dev/shm/nowhere/#g' {shlex.join(files)} && systemctl daemon-reload")
    return f"pointed the model path of {', '.join(files)} to /dev/shm/nowhere/"


FAULTS = {
    "uvm-rule-missing": Fault("the container's file has no rule for nvidia-uvm", _uvm_rule_missing),
    "uvm-major-moved": Fault("the host rebooted and nvidia-uvm has another major", _uvm_major_moved),
    "device-node-missing": Fault("/dev/nvidia-uvm is missing on the host", _device_node_missing),
    "staged-model-truncated": Fault("a staged model lost its last 4096 bytes", _staged_model_truncated),
    "engine-unit-model-path": Fault(
        "the engine's unit names a model that is not there", _engine_unit_model_path
    ),
}
