"""The lab's command line: `python -m tests.lab VERB`."""

from __future__ import annotations

import argparse
import os
import shutil
from typing import TYPE_CHECKING

from tests.lab import models, requirements, room, rootfs, verbs, wheels
from tests.lab.console import complain, say
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except LabError as exc:
        complain(str(exc))
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    enter = commands.add_parser("enter", help="run a command in a private machine room; nothing of it stays")
    enter.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD…", help="default: a shell")
    enter.set_defaults(run=_enter)

    fetch = commands.add_parser("fetch", help="fill the cache: root filesystem, model, wheels (by network)")
    _add_size(fetch, "accepted, so that `fetch` takes the same options as `up`")
    fetch.set_defaults(run=_fetch)

    up = commands.add_parser(
        "up", help="boot the hosts and their nodes, in the state of after a host's reboot"
    )
    _add_size(up, "default 1")
    up.add_argument("--fresh", action="store_true", help="throw away the running lab first")
    up.set_defaults(run=_up)

    for name, run, text in (
        ("down", verbs.down, "stop all machines and throw away their disks"),
        ("status", verbs.status, "what is running"),
        ("faults", verbs.list_faults, "list the faults that `break` knows"),
        ("inventory", verbs.show_inventory, "print the Ansible inventory as JSON"),
    ):
        commands.add_parser(name, help=text).set_defaults(run=lambda _, run=run: run())

    reboot = commands.add_parser("reboot-host", help="reboot a host, as its own `systemctl reboot` does")
    reboot.add_argument("host", metavar="HOST")
    reboot.add_argument("--uvm-major", metavar="new|NUMBER", help="the major that nvidia-uvm gets this time")
    reboot.set_defaults(run=lambda options: verbs.reboot_host(options.host, options.uvm_major))

    cut = commands.add_parser(
        "power-cut", help="kill a host without a shutdown and boot it again; disks stay"
    )
    cut.add_argument("host", metavar="HOST")
    cut.add_argument("--stay-off", action="store_true", help="leave it off; `up` boots it")
    cut.set_defaults(run=lambda options: verbs.power_cut(options.host, stay_off=options.stay_off))

    fault = commands.add_parser("break", help="make a fault on a node or its host")
    fault.add_argument("fault", metavar="FAULT", help="one of those that `faults` lists")
    fault.add_argument("node", metavar="NODE", nargs="?", help="default: the first node")
    fault.set_defaults(run=lambda options: verbs.break_node(options.fault, options.node))

    ssh = commands.add_parser("ssh", help="a shell, or a command, on a machine")
    ssh.add_argument("name", metavar="NAME")
    ssh.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD")
    ssh.set_defaults(run=lambda options: verbs.ssh(options.name, options.command))
    return parser


def _add_size(parser: argparse.ArgumentParser, note: str) -> None:
    parser.add_argument("--hosts", type=int, metavar="N", help=f"hosts ({note})")
    parser.add_argument("--nodes", type=int, metavar="M", help=f"nodes on each host ({note})")
    parser.add_argument(
        "--model", choices=sorted(models.MODELS), default="tiny", help="model in the nodes' cache"
    )


def _enter(options: argparse.Namespace) -> int:
    requirements.require_machine()
    rootfs.ensure_tree()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    return room.enter(command or [os.environ.get("SHELL") or shutil.which("bash") or "/bin/sh"])


def _fetch(options: argparse.Namespace) -> int:
    requirements.require_machine()
    tree = rootfs.ensure_tree()
    say(f"root filesystem: {tree}")
    say(f"model: {models.fetch(models.find_model(options.model))}")
    say(f"wheels for the nodes: {', '.join(path.parents[1].name for path in wheels.fetch(tree))}")
    return 0


def _up(options: argparse.Namespace) -> int:
    return verbs.up(hosts=options.hosts, nodes=options.nodes, model=options.model, fresh=options.fresh)
