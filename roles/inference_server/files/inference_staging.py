"""Models that take turns in memory: ask the switch for those of a configuration, and say how far it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from inference_evidence import run_lines
from inference_machine import QUIET, RequestError, show, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inference_machine import System

UNITS = "model-stage-switch@*.service"
STATE_VERSION = 1
STOP_S = 60.0  # longer than the unit's own TimeoutStopSec
LAST_LINES = 5


def stage(system: System, description: Mapping[str, Any]) -> dict[str, Any]:
    """Make the models of a configuration be there; returns at once, `staging` says how it goes.

    `before` is the run of the switch that has left its state: the one that begins now has another.
    """
    number = set_of(system, description)
    if number is None:
        return {"needed": False}
    wanted = f"model-stage-switch@{number}.service"
    for unit in running(system):
        if unit != wanted:
            done = system.run(["systemctl", "--no-ask-password", "stop", "--", unit], STOP_S)
            if done.returncode != 0:
                raise RequestError(f"systemctl stop {unit}: {text(done.stderr).strip()}")
    now, left = show(system, wanted), str(state(system).get("run", ""))
    if now["ActiveState"] not in QUIET:
        return {"needed": True, "set": number, "before": "" if left == now["InvocationID"] else left}
    system.run(["systemctl", "reset-failed", "--", wanted])  # fails where nothing had failed: no matter
    done = system.run(["systemctl", "--no-ask-password", "--no-block", "start", "--", wanted])
    if done.returncode != 0:
        raise RequestError(f"{wanted} cannot be started: {text(done.stderr).strip()}; run stage.yml")
    return {"needed": True, "set": number, "before": left}


def staging(system: System, description: Mapping[str, Any]) -> dict[str, Any]:
    """State of the switch's unit, and what it has written."""
    number = set_of(system, description)
    if number is None:
        return {"needed": False}
    unit = f"model-stage-switch@{number}.service"
    # The unit first: once it rests, the file is final.
    shown = show(system, unit)
    waits = system.properties(unit, ("Job",)).get("Job", "")
    shown["rests"] = shown["ActiveState"] in QUIET and waits in ("", "0")
    shown["log"] = []
    if shown["rests"] and shown["InvocationID"]:  # it has failed: systemd forgets a unit that ended well
        shown["log"] = run_lines(system, shown["InvocationID"], LAST_LINES)[0]
    return {"needed": True, "set": number, **shown, "switch": state(system)}


def set_of(system: System, description: Mapping[str, Any]) -> int | None:
    """Which set of the plan a configuration's models are; None where everything fits together."""
    path = system.switch_plan
    try:
        sets = json.loads(path.read_text(encoding="utf-8"))["sets"]
        wanted = {str(name) for name in (description["model"], description.get("draft_model")) if name}
        found = next((number for number, names in enumerate(sets) if set(names) == wanted), None)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as exc:
        raise RequestError(f"{path} cannot be read: {exc}; stage again (stage.yml)") from exc
    if found is None:
        names = " and ".join(sorted(wanted))
        raise RequestError(f"{path} has no set with just {names}; stage again with this plan (stage.yml)")
    return found


def running(system: System) -> list[str]:
    """Switches that are at work."""
    query = ["list-units", "--plain", "--no-legend", "--full", "--all", "--", UNITS]
    done = system.run(["systemctl", *query])
    if done.returncode != 0:
        raise RequestError(f"systemctl list-units {UNITS}: {text(done.stderr).strip()}")
    fields = (line.split() for line in text(done.stdout).splitlines())
    return [each[0] for each in fields if len(each) > 2 and each[2] not in QUIET]  # noqa: PLR2004 - UNIT LOAD ACTIVE


def state(system: System) -> dict[str, Any]:
    """What the switch wrote last; empty where it never ran since the last boot."""
    path = system.switch_state
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version = found["schema_version"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as exc:
        raise RequestError(f"{path} cannot be read: {exc}") from exc
    if version != STATE_VERSION:
        raise RequestError(f"{path} has the version {version}, not {STATE_VERSION}: deploy again")
    return dict(found)
