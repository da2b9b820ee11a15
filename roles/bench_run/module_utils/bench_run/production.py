"""What serves on the node beside a campaign: stopped for it only when allowed, and started again after it.

The campaign's own unit does both, so it holds whatever ends the campaign (an end, a fault, SIGKILL, the OOM
killer), with or without Ansible. Only a reboot of the node passes it by: then systemd starts what is enabled.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

UP = ("active", "activating", "reloading")
UNIT_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9:_.@-]*\.(service|socket|target|timer)$")
SYSTEMCTL = "/usr/bin/systemctl"  # a unit's command wants a full path
VARIABLE = "bench_run_stop_production_allowed"


def unit_names(names: list[str]) -> list[str]:
    """As systemd has them; a name without its kind is a service's."""
    return [name if "." in name.rpartition("@")[2] else f"{name}.service" for name in names]


def name_problem(names: list[str]) -> str | None:
    for name in names:
        if not UNIT_NAME.match(name):
            return f"bench_run_production_units: {name!r} is no unit's name; needed one such as qwen.service"
    return None


def properties(text: str) -> dict[str, str]:
    """What `systemctl show` says of one unit."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def show_command(unit: str) -> list[str]:
    wanted = [f"--property={name}" for name in ("LoadState", "ActiveState", "UnitFileState")]
    return ["systemctl", "show", *wanted, "--", unit]


def state_problem(unit: str, found: dict[str, str]) -> str | None:
    if found.get("UnitFileState") == "transient" and found.get("ActiveState") in UP:
        return (
            f"bench_run_production_units: {unit} is transient (systemd-run): stopped, it is gone, and nobody "
            "could start it again; give it a unit file, or stop it yourself"
        )
    if found.get("LoadState") in {"loaded", "masked"}:
        return None
    return (
        f"bench_run_production_units: systemd knows no {unit} here (LoadState={found.get('LoadState')}); "
        "correct the name, or take it out for this node"
    )


def refusal(up: list[str]) -> str:
    return (
        f"{' and '.join(up)} serves on this node, and a campaign would be measured beside it; allow to "
        f"stop it for the campaign (it is started again after it): -e {VARIABLE}=true"
    )


def warning(unit: str, found: dict[str, str]) -> str | None:
    """Of a unit that nobody starts again when the node reboots in the middle of the campaign."""
    if found.get("UnitFileState") in {"enabled", "enabled-runtime", "static", "generated", "alias"}:
        return None
    return f"{unit} is not enabled: after a reboot in the middle of the campaign, nobody starts it again"


def unit_properties(up: list[str], stop_s: int) -> list[str]:
    """Of the campaign's unit. `+`: as root and unhardened, though the campaign is neither."""
    if not up:
        return []
    names = " ".join(up)
    return [
        f"TimeoutStartSec={stop_s}",
        f"ExecStartPre=+{SYSTEMCTL} stop -- {names}",
        # Not waited for: a large model may take longer to load than a unit may take to stop.
        f"ExecStopPost=+{SYSTEMCTL} start --no-block -- {names}",
    ]


class ProductionError(Exception):
    """A campaign must not be started; the sentence says what to do."""


def serving(
    names: list[str], run: Callable[[list[str]], tuple[int, str, str]], *, allowed: bool
) -> tuple[list[str], list[str]]:
    """The units that are up, and what is to be warned of. `run` runs a command on the node."""
    units = unit_names(names)
    problem = name_problem(units)
    if problem:
        raise ProductionError(problem)
    up, notes = [], []
    for unit in units:
        status, out, err = run(show_command(unit))
        if status != 0:
            raise ProductionError(f"systemctl show {unit}: {(err or out).strip()}")
        found = properties(out)
        problem = state_problem(unit, found)
        if problem:
            raise ProductionError(problem)
        if found.get("ActiveState") in UP:
            up.append(unit)
            notes += [note for note in [warning(unit, found)] if note]
    if up and not allowed:
        raise ProductionError(refusal(up))
    return up, notes
