"""What the boot unit does: the repair ladder's first three steps, before the containers start.

Each container has a file `<vmid>.json` that says how its devices are granted. All news goes to the journal,
with the priority that systemd reads from the line's beginning.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from . import drivers, nodes
from .commands import find, node_helper, runner
from .conf import decode, parse
from .errors import PveLxcError, Refused
from .rules import read_proc_devices
from .update import Places, Wishes, update

SETTINGS_DIR = Path("/etc/recover-and-bench/devices")
SETTINGS_VERSION = 1
LIMIT_S = 50.0  # the unit ends after 60
_MODULES_LIMIT_S = 30.0
_RETRY_S = 1.0
_ERROR, _WARNING, _INFO = 3, 4, 6


def main(folder: Path = SETTINGS_DIR) -> int:
    """The number of things that went wrong, for the exit status."""
    deadline = time.monotonic() + LIMIT_S
    containers = sorted(folder.glob("[0-9]*.json"))
    if not containers:
        return 0
    wrong = prepare_host(containers)
    for path in containers:
        wrong += not prepare_container(path, deadline)
    return min(wrong, 1)


def prepare_host(containers: list[Path]) -> int:
    """Modules and nodes, once for all containers, where the first one says they are."""
    try:
        places, wishes = read_settings(containers[0])
        loaded = drivers.load(places.proc_devices, runner(_MODULES_LIMIT_S), find)
        say(_INFO, f"loaded {', '.join(loaded)}" if loaded else "nvidia and nvidia-uvm are loaded")
        return make_nodes(places, wishes, named_nodes(containers, places))
    except PveLxcError as exc:
        say(_ERROR, str(exc))
        return 1


def named_nodes(containers: list[Path], places: Places) -> list[str]:
    """What the containers' files name, as far as they can be read: a failure shows when each has its turn."""
    named = []
    for path in containers:
        with contextlib.suppress(OSError):
            text = decode((places.conf_dir / f"{path.stem}.conf").read_bytes())
            named += nodes.named_in(parse(text))
    return named


def make_nodes(places: Places, wishes: Wishes, named: list[str]) -> int:
    minors = nodes.gpu_minors(places.driver_dir, places.dev_dir, wishes.expected_gpus)
    needed = nodes.host_nodes(read_proc_devices(places.proc_devices), minors, named)
    findings = nodes.inspect(needed, places.dev_dir)
    refused = [finding for finding in findings if finding.action == "refuse"]
    for finding in refused:
        say(_ERROR, f"{finding.why}; it is left alone")
    mendable = [finding for finding in findings if finding.action in ("make", "replace", "chmod")]
    nodes.put_right(mendable, places.dev_dir, node_helper(places.dev_dir, _MODULES_LIMIT_S))
    for finding in mendable:
        say(_INFO, f"{finding.why}: put right")
    return len(refused)


def prepare_container(path: Path, deadline: float) -> bool:
    """Until it works or time is up: `/etc/pve` may be read-only until the cluster has quorum."""
    vmid = path.stem
    while True:
        try:
            places, wishes = read_settings(path)
            outcome = update(int(vmid), places, wishes)
        except Refused as exc:
            say(_WARNING, f"container {vmid}: left alone: {exc}")
            return False
        except PveLxcError as exc:
            if time.monotonic() + _RETRY_S > deadline:
                say(_ERROR, f"container {vmid}: {exc}")
                return False
            time.sleep(_RETRY_S)
            continue
        changes = "; ".join(outcome.plan.changes) if outcome.changed else "its file has all it needs"
        say(_INFO, f"container {vmid}: {changes}")
        for note in outcome.plan.notes:
            say(_WARNING, f"container {vmid}: {note}")
        return True


def read_settings(path: Path) -> tuple[Places, Wishes]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema_version"] > SETTINGS_VERSION:
            raise Refused(f"{path} is of version {data['schema_version']}; this is {SETTINGS_VERSION}")
        places = Places(**{name: Path(place) for name, place in data["places"].items()})
        return places, Wishes(**data["wishes"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise Refused(f"{path} can't be read as settings ({exc!r})") from exc


def settings(places: dict[str, str], wishes: dict[str, Any]) -> str:
    """The text of a container's settings; `read_settings` reads it."""
    data = {"schema_version": SETTINGS_VERSION, "places": places, "wishes": wishes}
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def say(priority: int, text: str) -> None:
    print(f"<{priority}>{text}", file=sys.stderr, flush=True)  # noqa: T201 - the journal reads this
