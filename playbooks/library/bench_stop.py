#!/usr/bin/python
"""Ask the benchmark campaigns of this machine to stop, and follow them until they have."""

from __future__ import annotations

DOCUMENTATION = """
module: bench_stop
short_description: Stops running benchmark campaigns, after their cell or at once
description:
  - A campaign runs as the unit C(bench-run-<campaign>.service). It is asked to stop after the running cell
    (SIGUSR1), or stopped now (SIGTERM; the cell becomes C(interrupted), and the next run measures it again).
  - One call asks. Further calls, with I(follow), wait a few seconds each until the campaigns have ended, for
    a task with C(until).
  - The action plugin of the same name makes a machine that can't be reached an answer, not an error.
options:
  now:
    description: Stop now instead of after the cell.
    type: bool
    default: false
  follow:
    description: C(running) of an earlier call; then nothing is asked.
    type: list
    elements: str
  since:
    description: C(since) of an earlier call.
    type: float
  limit_s:
    description: How long the campaigns may take to end, from I(since) on.
    type: float
    default: 1800
  root:
    description: Folder with a folder for each campaign.
    type: path
    default: /var/lib/bench
  wait_s:
    description: How long one call waits for news.
    type: float
    default: 2
  systemctl:
    description: The systemctl command.
    type: str
    default: systemctl
attributes:
  check_mode: {description: Says what runs, and asks nothing., support: full}
  diff_mode: {support: none}
author: recover-and-bench
"""
EXAMPLES = """
- name: Ask the campaigns to stop after their cell
  bench_stop:
  register: asked

- name: Let the cell end
  bench_stop:
    follow: "{{ asked.running }}"
    since: "{{ asked.since }}"
  register: followed
  until: followed.finished
  retries: 900
  delay: 0
"""
RETURN = """
running: {description: Campaigns that still run., type: list, returned: always}
finished: {description: Whether none of them runs any more., type: bool, returned: always}
since: {description: When they were asked (this machine's clock)., type: float, returned: always}
"""

import json
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

PREFIX, SUFFIX = "bench-run-", ".service"
LIVE = {"active", "activating", "reloading", "deactivating"}


class Campaigns:
    def __init__(self, module: AnsibleModule) -> None:
        self._module = module
        self._systemctl = module.params["systemctl"]
        self._root = Path(module.params["root"])

    def running(self) -> list[str]:
        """Names of the campaigns whose unit has a process."""
        found = []
        for line in self._call("list-units", "--all", "--plain", "--no-legend", f"{PREFIX}*{SUFFIX}"):
            unit, _loaded, active, *_rest = [*line.split(), "", "", ""]
            if active in LIVE:
                found.append(unit[len(PREFIX) : -len(SUFFIX)])
        return sorted(found)

    def tell(self, names: list[str], *, now: bool) -> None:
        for name in names:
            unit = f"{PREFIX}{name}{SUFFIX}"
            # --kill-who is the older name of --kill-whom, and known to every systemd.
            asked = ["stop", "--no-block"] if now else ["kill", "--kill-who=main", "--signal=SIGUSR1"]
            status, said = self._try(*asked, unit)
            # One that ended by itself meanwhile needs nothing.
            if status != 0 and name in self.running():
                self._module.fail_json(msg=f"{unit} could not be asked to stop: {said}")

    def stand(self, name: str) -> str:
        """Where a campaign stands, by its own status file."""
        status = self._status(name)
        state, message = status.get("state"), status.get("message")
        current = status.get("current") or {}
        if state == "running" and current:
            left = current.get("remaining_s")
            about = f", about {left:.0f} s left" if isinstance(left, (int, float)) else ""
            return (
                f"cell {current.get('position')} of {current.get('total')} is {current.get('phase')}{about}"
            )
        return f"{state}: {message}" if state else "it wrote no status"

    def _status(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads((self._root / name / "status.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _call(self, *words: str) -> list[str]:
        status, said = self._try(*words)
        if status != 0:
            self._module.fail_json(msg=f"systemctl {' '.join(words)} ended with status {status}: {said}")
        return said.splitlines()

    def _try(self, *words: str) -> tuple[int, str]:
        status, out, err = self._module.run_command([self._systemctl, *words])
        return status, str(out) if status == 0 else (err or out).strip()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "now": {"type": "bool", "default": False},
            "follow": {"type": "list", "elements": "str"},
            "since": {"type": "float"},
            "limit_s": {"type": "float", "default": 1800.0},
            "root": {"type": "path", "default": "/var/lib/bench"},
            "wait_s": {"type": "float", "default": 2.0},
            "systemctl": {"type": "str", "default": "systemctl"},
        },
        supports_check_mode=True,
    )
    campaigns, now, asks = Campaigns(module), module.params["now"], module.params["follow"] is None
    names = campaigns.running() if asks else module.params["follow"]
    since = time.time() if asks else module.params["since"]
    if asks and not module.check_mode:
        campaigns.tell(names, now=now)
    running = names if module.check_mode else wait(campaigns, names, module.params["wait_s"])
    stands = {name: campaigns.stand(name) for name in names}
    result: dict[str, Any] = {"changed": bool(names) and asks, "running": running, "since": since}
    result["finished"] = not running or module.check_mode
    if not names:
        result["summary"] = "no campaign is running"
    elif module.check_mode:
        what = "would be stopped now" if now else "would end after this cell"
        result["summary"] = "; ".join(f"campaign {name} {what} ({stands[name]})" for name in names)
    elif running and time.time() - since > module.params["limit_s"]:
        result["finished"] = True  # a failure that `until` need not try again
        module.fail_json(
            msg="; ".join(f"campaign {name}: {stands[name]}" for name in running)
            + f", and its cell has not ended within {module.params['limit_s']:g} s. Wait longer "
            "(prepare_reboot_limit_s), or stop it now and have it measured again after the reboot "
            "(prepare_reboot_stop_now=true).",
            **result,
        )
    elif running:
        what = "told to stop now" if now else "the last one before the stop"
        result["progress"] = "; ".join(f"campaign {name}: {stands[name]}, {what}" for name in running)
    else:
        result["summary"] = "; ".join(f"campaign {name} has ended ({stands[name]})" for name in names)
        result["waited_s"] = {"measure": round(time.time() - since, 1)}
    module.exit_json(**result)


def wait(campaigns: Campaigns, names: list[str], limit_s: float) -> list[str]:
    """Wait a little for the campaigns to end; those that still run."""
    end = time.monotonic() + limit_s
    running = names
    while running and time.monotonic() < end:
        time.sleep(min(0.2, limit_s))
        running = [name for name in campaigns.running() if name in names]
    return running


if __name__ == "__main__":
    main()
