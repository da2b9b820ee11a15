"""What the verbs inside the room do; each returns the exit status of the command line."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING

from tests.lab import disks, drivers, faults, inventory, keys, machines, paths, requirements, rootfs
from tests.lab import fleet as names
from tests.lab.console import complain, say
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.fleet import Fleet, Host


def up(*, hosts: int | None, nodes: int | None, model: str, fresh: bool) -> int:
    """Boot what is off; a lab that is not there yet is built first."""
    requirements.require_room()
    started = time.monotonic()
    fleet = names.load_fleet(paths.FLEET_FILE)
    if fleet and fresh:
        _remove(fleet)
        fleet = None
    if fleet:
        _require_same_size(fleet, hosts, nodes)
        cold = tuple(host for host in fleet.hosts if machines.state(host) == "stopped")
    else:
        fleet = names.make_fleet(hosts or 1, nodes or 1)
        cold = fleet.hosts
        _build(fleet, model)
    for host in cold:
        machines.power_on(host)
    silent = machines.wait_for_hosts(cold)
    what = f"booted {', '.join(host.name for host in cold)}" if cold else "was up already"
    say(f"lab: {what}; {_described(fleet)} ({time.monotonic() - started:.1f} s)")
    for note in silent:
        complain(note)
    return 1 if silent else 0


def _require_same_size(fleet: Fleet, hosts: int | None, nodes: int | None) -> None:
    size = fleet.size
    if (hosts or size[0], nodes or size[1]) != size:
        raise LabError(
            f"the running lab has {size[0]} host(s) with {size[1]} node(s) each; --fresh makes another size"
        )


def _build(fleet: Fleet, model: str) -> None:
    """Everything on disk before the first boot; the fleet's file comes last, so half a lab is no lab."""
    tree = rootfs.ensure_tree()
    shutil.rmtree(paths.MACHINES, ignore_errors=True)
    for host in fleet.hosts:
        (paths.machine_dir(host.name) / "disks").mkdir(parents=True)
        machines.write_config(host, tree)
    keys.make_keys(fleet)
    disks.make_disks(fleet, drivers.usable_donors(), names.GPUS_PER_HOST, model)
    machines.make_bridge()
    names.save_fleet(fleet, paths.FLEET_FILE, model)


def _remove(fleet: Fleet) -> None:
    for host in fleet.hosts:
        machines.power_off(host)
    paths.FLEET_FILE.unlink()
    shutil.rmtree(paths.MACHINES)
    shutil.rmtree(paths.SSH_DIR)


def _described(fleet: Fleet) -> str:
    return "; ".join(
        f"{host.name} with {', '.join(node.name for node in host.nodes)}" for host in fleet.hosts
    )


def _fleet() -> Fleet:
    requirements.require_lab()
    return inventory.running_fleet()


def down() -> int:
    requirements.require_room()
    fleet = names.load_fleet(paths.FLEET_FILE)
    if fleet is None:
        say("lab: was down already")
        return 0
    _remove(fleet)
    say(f"lab: stopped {_described(fleet)} and removed their disks")
    return 0


def status() -> int:
    for host in _fleet().hosts:
        state = machines.state(host)
        reached = state == "running" and machines.answers(host.name)
        settings = drivers.load_settings(paths.settings_dir(host.name))
        _status_line(host.name, host.address, f"{state}, {_word(answers=reached)}")
        _status_line("", "", f"{len(settings.gpus)} GPUs, nvidia {settings.nvidia_major}, {_uvm(settings)}")
        for node in host.nodes:
            shown = (
                machines.ssh(host.name, f"pct status {node.vmid}").stdout if reached else "status: unknown"
            )
            state = shown.strip().removeprefix("status: ")
            _status_line(node.name, node.address, f"{state}, {_word(answers=machines.answers(node.name))}")
    return 0


def _status_line(name: str, address: str, text: str) -> None:
    say(f"{name:<8} {address:<12} {text}")


def _word(*, answers: bool) -> str:
    return "answers" if answers else "silent"


def _uvm(settings: drivers.Settings) -> str:
    return f"nvidia-uvm {settings.uvm.major}"


def list_faults() -> int:
    for name, fault in faults.FAULTS.items():
        say(f"{name:<24} {fault.text}")
    return 0


def show_inventory() -> int:
    say(json.dumps(inventory.running_inventory(), indent=1))
    return 0


def reboot_host(name: str, uvm_major: str | None) -> int:
    host = _fleet().host(name)
    if uvm_major:
        folder = paths.settings_dir(host.name)
        settings = drivers.load_settings(folder)
        drivers.save_settings(drivers.with_uvm(settings, uvm_major, drivers.usable_donors()), folder)
    return _boot(host, machines.reboot, "rebooted")


def power_cut(name: str, *, stay_off: bool) -> int:
    host = _fleet().host(name)
    machines.power_off(host)
    if stay_off:
        say(f"lab: {host.name} is off; `up` boots it")
        return 0
    return _boot(host, machines.power_on, "lost power and booted again")


def _boot(host: Host, action: Callable[[Host], None], done: str) -> int:
    started = time.monotonic()
    action(host)
    silent = machines.wait_for_hosts((host,))
    settings = drivers.load_settings(paths.settings_dir(host.name))
    say(f"lab: {host.name} {done}, {_uvm(settings)} ({time.monotonic() - started:.1f} s)")
    for note in silent:  # a fault that the reboot did not heal, so no failure of the reboot
        complain(note)
    return 0


def break_node(fault: str, node_name: str | None) -> int:
    fleet = _fleet()
    node = fleet.node(node_name) if node_name else fleet.nodes[0]
    say(f"lab: {faults.make(fault, node, fleet.host(node.host))}")
    return 0


def ssh(name: str, command: list[str]) -> int:
    """Become the ssh client; with a command it reads no input, which would be the calling script's."""
    fleet = _fleet()
    if name not in fleet.names:
        raise LabError(f"no machine {name!r} in this lab; it has {', '.join(fleet.names)}")
    quiet = ["-n"] if command else []
    os.execvp("ssh", ["ssh", *quiet, "-F", str(paths.SSH_CONFIG), name, *command])  # noqa: S606 (no shell wanted)
