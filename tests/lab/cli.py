"""The lab's command line: `python -m tests.lab VERB`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

from tests.lab import (
    disks,
    drivers,
    faults,
    inventory,
    keys,
    machines,
    models,
    paths,
    requirements,
    room,
    rootfs,
)
from tests.lab import fleet as names
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lab.fleet import Fleet, Host


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except LabError as exc:
        print(f"lab: {exc}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    enter = verbs.add_parser("enter", help="run a command in a private machine room; nothing of it stays")
    enter.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD…", help="default: a shell")
    enter.set_defaults(run=_enter)

    fetch = verbs.add_parser("fetch", help="fill the cache: root filesystem, models (needs the network)")
    fetch.add_argument("--model", choices=sorted(models.MODELS), default="tiny")
    fetch.set_defaults(run=_fetch)

    up = verbs.add_parser(
        "up", help="build and boot the hosts and their nodes; the state is that after a reboot"
    )
    up.add_argument("--hosts", type=int, metavar="N", help="hosts (default 1)")
    up.add_argument("--nodes", type=int, metavar="M", help="nodes on each host (default 1)")
    up.add_argument(
        "--model", choices=sorted(models.MODELS), default="tiny", help="model in the nodes' cache"
    )
    up.add_argument("--fresh", action="store_true", help="throw away the running lab first")
    up.set_defaults(run=_up)

    for name, run, text in (
        ("down", _down, "stop all machines and throw away their disks"),
        ("status", _status, "what is running"),
        ("faults", _faults, "list the faults that `break` knows"),
        ("inventory", _inventory, "print the Ansible inventory as JSON"),
    ):
        verbs.add_parser(name, help=text).set_defaults(run=run)

    reboot = verbs.add_parser("reboot-host", help="reboot a host, as its own `systemctl reboot` does")
    reboot.add_argument("host", metavar="HOST")
    reboot.add_argument("--uvm-major", metavar="new|NUMBER", help="the major that nvidia-uvm gets this time")
    reboot.set_defaults(run=_reboot)

    cut = verbs.add_parser(
        "power-cut", help="kill a host without a shutdown and boot it again; its disks stay"
    )
    cut.add_argument("host", metavar="HOST")
    cut.add_argument("--stay-off", action="store_true", help="leave it off; `up` boots it")
    cut.set_defaults(run=_power_cut)

    fault = verbs.add_parser("break", help="make a fault on a node or its host")
    fault.add_argument("fault", metavar="FAULT")
    fault.add_argument("node", metavar="NODE", nargs="?", help="default: the first node")
    fault.set_defaults(run=_break)

    ssh = verbs.add_parser("ssh", help="a shell, or a command, on a machine")
    ssh.add_argument("name", metavar="NAME")
    ssh.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    ssh.set_defaults(run=_ssh)
    return parser


def _enter(options: argparse.Namespace) -> int:
    requirements.require_machine()
    if room.inside():
        raise LabError("this is inside a room already")
    rootfs.ensure_tree()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    return room.enter(command or [os.environ.get("SHELL") or shutil.which("bash") or "/bin/sh"])


def _fetch(options: argparse.Namespace) -> int:
    requirements.require_machine()
    print(rootfs.ensure_tree())
    print(models.fetch(models.find_model(options.model)))
    return 0


def _up(options: argparse.Namespace) -> int:
    requirements.require_root()
    requirements.require_room()
    started = time.monotonic()
    running = names.load_fleet(paths.FLEET_FILE)
    if running and options.fresh:
        _remove(running)
        running = None
    if running:
        _require_same_size(running, options)
        cold = tuple(host for host in running.hosts if machines.state(host) == "stopped")
        fleet = running
    else:
        fleet = names.make_fleet(options.hosts or 1, options.nodes or 1)
        cold = fleet.hosts
        _prepare(fleet, options.model)
    for host in cold:
        machines.power_on(host)
    machines.wait_for_all(fleet.hosts)
    what = f"booted {', '.join(host.name for host in cold)}" if cold else "was up already"
    print(f"lab: {what}; {_described(fleet)} ({time.monotonic() - started:.1f} s)")
    return 0


def _require_same_size(fleet: Fleet, options: argparse.Namespace) -> None:
    hosts, nodes = fleet.size
    if (options.hosts or hosts, options.nodes or nodes) != (hosts, nodes):
        raise LabError(
            f"the running lab has {hosts} host(s) with {nodes} node(s) each; --fresh makes another size"
        )


def _described(fleet: Fleet) -> str:
    return "; ".join(
        f"{host.name} with {', '.join(node.name for node in host.nodes)}" for host in fleet.hosts
    )


def _prepare(fleet: Fleet, model: str) -> None:
    """Everything on disk before the first boot; the fleet file comes last, so half a lab is no lab."""
    tree = rootfs.ensure_tree()
    shutil.rmtree(paths.MACHINES, ignore_errors=True)
    for host in fleet.hosts:
        (paths.machine_dir(host.name) / "disks").mkdir(parents=True)
        machines.write_config(host, tree)
    keys.make_keys(fleet)
    disks.make_disks(fleet, drivers.usable_donors(), names.GPUS_PER_HOST, model)
    machines.make_bridge()
    names.save_fleet(fleet, paths.FLEET_FILE)


def _remove(fleet: Fleet) -> None:
    for host in fleet.hosts:
        machines.power_off(host)
    paths.FLEET_FILE.unlink()
    shutil.rmtree(paths.MACHINES)
    shutil.rmtree(paths.SSH_DIR)


def _fleet() -> Fleet:
    requirements.require_lab()
    return inventory.running_fleet()


def _down(_: argparse.Namespace) -> int:
    requirements.require_room()
    fleet = names.load_fleet(paths.FLEET_FILE)
    if fleet is None:
        print("lab: was down already")
        return 0
    _remove(fleet)
    print(f"lab: stopped {_described(fleet)} and removed their disks")
    return 0


def _status(_: argparse.Namespace) -> int:
    fleet = _fleet()
    for host in fleet.hosts:
        state = machines.state(host)
        reached = state == "running" and machines.answers(host.name)
        print(f"{host.name:<8} {host.address:<12} {state}, {'answers' if reached else 'silent'}")
        settings = drivers.load_settings(paths.settings_dir(host.name))
        print(
            f"{'':<8} nvidia {settings.nvidia_major}, nvidia-uvm {settings.uvm.major}, {len(settings.gpus)} GPUs"
        )
        for node in host.nodes:
            shown = (
                machines.ssh(host.name, f"pct status {node.vmid}").stdout.strip()
                if reached
                else "status: unknown"
            )
            print(
                f"{node.name:<8} {node.address:<12} {shown}, {'answers' if machines.answers(node.name) else 'silent'}"
            )
    return 0


def _faults(_: argparse.Namespace) -> int:
    for name, fault in faults.FAULTS.items():
        print(f"{name:<26} {fault.text}")
    return 0


def _inventory(_: argparse.Namespace) -> int:
    print(json.dumps(inventory.inventory(inventory.running_fleet()), indent=1))
    return 0


def _set_uvm_major(host: Host, wanted: str) -> None:
    folder = paths.settings_dir(host.name)
    settings = drivers.load_settings(folder)
    drivers.save_settings(drivers.with_uvm(settings, wanted, drivers.usable_donors()), folder)


def _reboot(options: argparse.Namespace) -> int:
    host = _fleet().host(options.host)
    if options.uvm_major:
        _set_uvm_major(host, options.uvm_major)
    return _boot(host, machines.reboot, "rebooted")


def _boot(host: Host, action: object, done: str) -> int:
    started = time.monotonic()
    action(host)  # type: ignore[operator]
    machines.wait_for_all((host,))
    settings = drivers.load_settings(paths.settings_dir(host.name))
    print(
        f"lab: {host.name} {done}; nvidia-uvm has major {settings.uvm.major} ({time.monotonic() - started:.1f} s)"
    )
    return 0


def _power_cut(options: argparse.Namespace) -> int:
    host = _fleet().host(options.host)
    machines.power_off(host)
    if options.stay_off:
        print(f"lab: {host.name} is off; `up` boots it")
        return 0
    return _boot(host, machines.power_on, "lost power and booted again")


def _break(options: argparse.Namespace) -> int:
    fleet = _fleet()
    node = fleet.node(options.node) if options.node else fleet.nodes[0]
    print(f"lab: {faults.make(options.fault, node, fleet.host(node.host))}")
    return 0


def _ssh(options: argparse.Namespace) -> int:
    fleet = _fleet()
    if options.name not in {machine.name for machine in [*fleet.hosts, *fleet.nodes]}:
        fleet.node(options.name)
    os.execvp("ssh", ["ssh", "-F", str(paths.SSH_CONFIG), options.name, *options.command])
