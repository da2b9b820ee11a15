"""The VM tier's command line: `python -m tests.lab.vm VERB`. `ssh` and `inventory` are the lab's own."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tests.lab.console import complain
from tests.lab.errors import LabError
from tests.lab.vm import verbs

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
    parser = argparse.ArgumentParser(prog="python -m tests.lab.vm", description=__doc__)
    commands = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, run, text in (
        ("fetch", verbs.fetch, "fill the cache: kernel, driver modules, disk (by network)"),
        ("up", verbs.up, "boot the host and its node, in the state of after a host's reboot"),
        ("down", verbs.down, "stop the VM and throw away its disk"),
    ):
        commands.add_parser(name, help=text).set_defaults(run=lambda _, run=run: run())
    reboot = commands.add_parser("reboot", help="reboot the host, as its own `systemctl reboot` does")
    reboot.add_argument("--uvm-major", metavar="NUMBER", type=int, help="the major that nvidia-uvm gets then")
    reboot.set_defaults(run=lambda options: verbs.reboot(options.uvm_major))
    return parser
