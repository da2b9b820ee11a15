"""pct's command line, as far as the lab's tools use it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn

from . import containers
from .console import complain, say
from .errors import PctError

if TYPE_CHECKING:
    from .conf import Section

USAGE = """usage: pct <COMMAND> [ARGS] [OPTIONS]
       pct config <vmid> [--current]
       pct exec <vmid> [--] <command>
       pct list
       pct reboot <vmid> [--timeout <seconds>]
       pct set <vmid> [--<option> <value>] [--delete <options>]
       pct shutdown <vmid> [--timeout <seconds>] [--forceStop <boolean>]
       pct start <vmid> [--skiplock]
       pct status <vmid> [--verbose]
       pct stop <vmid> [--skiplock]
       pct unlock <vmid>"""


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `pct config 200 | head` is no error
    try:
        return _dispatch(arguments, containers.default_place())
    except PctError as exc:
        complain(str(exc))
        return exc.status


def _dispatch(arguments: list[str], place: containers.Place) -> int:
    if not arguments:
        raise PctError(f"ERROR: no command specified\n{USAGE}")
    verb, *rest = arguments
    if verb == "list":
        return _list(place)
    verbs = {
        "config": _config,
        "exec": _exec,
        "reboot": _reboot,
        "set": _set,
        "shutdown": _shutdown,
        "start": _start,
        "status": _status,
        "stop": _stop,
        "unlock": _unlock,
    }
    if verb not in verbs:
        raise PctError(f"ERROR: unknown command 'pct {verb}'\n{USAGE}")
    if not rest or not rest[0].isdigit():
        raise PctError(f"400 not enough arguments\npct {verb} <vmid> [OPTIONS]")
    return verbs[verb](place, int(rest[0]), rest[1:])


def _options(verb: str, arguments: list[str], switches: set[str], values: set[str]) -> dict[str, str]:
    """Options in any of pct's spellings: `-name value`, `--name value`, `--name=value`."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name not in switches | values:
            _unknown(verb, name if argument.startswith("-") else argument)
        if name in switches:
            found[name] = value if equals else (rest.pop(0) if rest and rest[0] in {"0", "1"} else "1")
        elif equals or rest:
            found[name] = value if equals else rest.pop(0)
        else:
            raise PctError(f"400 unable to parse option\npct {verb}: option {name} requires an argument")
    return found


def _unknown(verb: str, name: str) -> NoReturn:
    raise PctError(f"Unknown option: {name}\n400 unable to parse option\npct {verb} <vmid> [OPTIONS]")


def _list(place: containers.Place) -> int:
    vmids = place.vmids()
    if not vmids:
        return 0
    say(f"{'VMID':<10} {'Status':<10} {'Lock':<12} {'Name':<20}")
    for vmid in vmids:
        keys = _read(place, vmid).keys
        name = keys.get("hostname", f"CT{vmid}")
        say(f"{vmid:<10} {containers.state(vmid):<10} {keys.get('lock', ''):<12} {name:<20}")
    return 0


def _read(place: containers.Place, vmid: int) -> Section:
    config = containers.load(place, vmid)
    for warning in config.warnings:
        complain(str(warning))
    return config.main


def _status(place: containers.Place, vmid: int, arguments: list[str]) -> int:
    options = _options("status", arguments, {"verbose"}, set())
    section = _read(place, vmid)
    state = containers.state(vmid)
    if options.get("verbose") != "1":
        say(f"status: {state}")
        return 0
    facts = {
        "cpus": section.keys.get("cores", "1"),
        "lock": section.keys.get("lock"),
        "maxmem": str(int(section.keys.get("memory", "512")) * 2**20),
        "name": section.keys.get("hostname", f"CT{vmid}"),
        "pid": str(containers.init_pid(vmid)) if state == "running" else None,
        "status": state,
        "type": "lxc",
        "vmid": str(vmid),
    }
    for key, value in facts.items():
        if value is not None:
            say(f"{key}: {value}")
    return 0


def _config(place: containers.Place, vmid: int, arguments: list[str]) -> int:
    _options("config", arguments, {"current"}, {"snapshot"})
    section = _read(place, vmid)
    if section.description:
        say(f"description: {section.description}".rstrip("\n").replace("\n", "%0A") + "%0A")
    for key in sorted(section.keys):
        say(f"{key}: {section.keys[key]}")
    for key, value in section.lxc:
        say(f"{key}: {value}")
    return 0


def _start(place: containers.Place, vmid: int, arguments: list[str]) -> int:
    options = _options("start", arguments, {"skiplock", "debug"}, set())
    containers.start(place, vmid, skip_lock=options.get("skiplock") == "1")
    return 0


def _stop(place: containers.Place, vmid: int, arguments: list[str]) -> int:
    options = _options("stop", arguments, {"skiplock", "overrule-shutdown"}, set())
    containers.stop(place, vmid, skip_lock=options.get("skiplock") == "1")
    return 0


def _shutdown(place: containers.Place, vmid: int, arguments: list[str]) -> int:
    options = _options("shutdown", arguments, {"forceStop"}, {"timeout"})
    timeout_s = int(options.get("timeout", "60"))
    containers.shutdown(place, vmid, timeout_s=timeout_s, force_stop=options.get("forceStop") == "1")
    return 0


def _reboot(place: containers.Place, vmid: int, arguments: list[str]) -> int:
    options = _options("reboot", arguments, set(), {"timeout"})
    containers.reboot(place, vmid, timeout_s=int(options.get("timeout", "60")))
    return 0


def _exec(place: containers.Place, vmid: int, arguments: list[str]) -> int:
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        raise PctError("400 not enough arguments\npct exec <vmid> [<extra-args>] [OPTIONS]")
    containers.run(place, vmid, command)


def _set(place: containers.Place, vmid: int, arguments: list[str]) -> int:
    changes: dict[str, str] = {}
    deletions: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or not containers.settable(name):
            _unknown("set", name)
        if not equals:
            if not rest:
                raise PctError(f"400 unable to parse option\npct set: option {name} requires an argument")
            value = rest.pop(0)
        if name == "delete":
            deletions += value.replace(",", " ").split()
        elif name != "digest":
            changes[name] = value
    for warning in containers.set_options(place, vmid, changes, deletions):
        complain(str(warning))
    return 0


def _unlock(place: containers.Place, vmid: int, arguments: list[str]) -> int:
    _options("unlock", arguments, set(), set())
    containers.unlock(place, vmid)
    return 0
