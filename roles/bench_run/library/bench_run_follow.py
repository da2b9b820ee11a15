#!/usr/bin/python
"""Wait a moment for news of a running campaign; at its end, say how it went."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bench_run_follow
short_description: Follows a benchmark campaign
description:
  - Reads the campaign's own status; changes nothing. For a task with C(until).
  - Fails when the runner could not go on, or is gone without a last word, with the last lines it said.
options:
  campaign:
    description: Its name.
    type: str
    required: true
  root:
    description: Folder of the campaigns.
    type: path
    required: true
  since_seq:
    description: C(since_seq) of M(bench_run_campaign); what came after it counts as now.
    type: int
    required: true
  run_before:
    description: C(run_before) of M(bench_run_campaign); a status of that run is an old one.
    type: str
    default: ''
  strict:
    description: Fail at the end when a cell is not ok.
    type: bool
    default: false
  production:
    description: Units that the campaign's own unit starts again at its end; their being up is awaited.
    type: list
    elements: str
    default: []
  wait_s:
    description: How long one call waits for news.
    type: float
    default: 2.0
attributes:
  check_mode: {description: It only reads., support: full}
  diff_mode: {support: none}
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Follow the campaign
  bench_run_follow:
    campaign: lab-small
    root: /var/lib/bench
    since_seq: "{{ started.since_seq }}"
    run_before: "{{ started.run_before }}"
  register: followed
  until: followed.finished
  retries: 1000
  delay: 0
"""
RETURN = r"""
finished: {description: Whether the campaign has ended., type: bool, returned: always}
progress: {description: What the runner is doing., type: str, returned: while it runs}
summary: {description: How it ended., type: str, returned: when finished}
status: {description: The campaign's counts and state., type: dict, returned: always}
"""

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bench_run import campaign_files, production, unit

LOOK_S = 0.2
PRODUCTION_UP_S = 3.0


class Follower:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.name: str = module.params["campaign"]
        self.folder = Path(module.params["root"]) / self.name
        self.seen = campaign_files.read_status(self.folder)

    def wait(self) -> bool:
        """Until the unit has ended or a time has passed; whether it has ended."""
        until = time.monotonic() + self.module.params["wait_s"]
        while True:
            ended = not self.is_running()
            self.seen = campaign_files.read_status(self.folder)
            if ended or time.monotonic() >= until:
                return ended
            time.sleep(LOOK_S)

    def is_running(self) -> bool:
        name = unit.unit_name(self.name)
        status, out, err = self.module.run_command(
            ["systemctl", "show", "--property=ActiveState", "--value", "--", name]
        )
        if status != 0:
            self.module.fail_json(msg=f"systemctl show {name}: {(err or out).strip()}", finished=True)
        return unit.is_live(str(out).strip())

    def production_down(self) -> list[str]:
        """Of what the campaign had stopped, the units that are not on their way up after a moment."""
        until = time.monotonic() + PRODUCTION_UP_S
        down: list[str] = list(self.module.params["production"])
        while True:
            down = [name for name in down if self.state_of(name) not in production.UP]
            if not down or time.monotonic() >= until:
                return down
            time.sleep(LOOK_S)

    def state_of(self, name: str) -> str:
        status, out, _ = self.module.run_command(production.show_command(name))
        return production.properties(out).get("ActiveState", "") if status == 0 else ""

    def last_lines(self) -> str:
        """What the unit said, for a runner that can't say it in its status any more."""
        command = [
            "journalctl",
            "--no-pager",
            "--output=cat",
            "--lines=8",
            f"--unit={unit.unit_name(self.name)}",
        ]
        status, out, err = self.module.run_command(command)
        said = [line.strip() for line in (out if status == 0 else err).splitlines() if line.strip()]
        return " | ".join(said[-8:]) or "its log has no line"

    def result(self) -> dict[str, Any]:
        """Of a campaign that has ended."""
        events = campaign_files.read_events(self.folder, self.module.params["since_seq"])
        return {
            "finished": True,
            "changed": any(event.get("event") == "cell_ended" for event in events),
            "waited_s": campaign_files.waited_s(events),
            "recovery": campaign_files.record(self.seen, events),
            "status": self.status(),
        }

    def status(self) -> dict[str, Any]:
        return {key: self.seen.get(key) for key in ("state", "counts", "kept", "message")}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "campaign": {"type": "str", "required": True},
            "root": {"type": "path", "required": True},
            "since_seq": {"type": "int", "required": True},
            "run_before": {"type": "str", "default": ""},
            "strict": {"type": "bool", "default": False},
            "production": {"type": "list", "elements": "str", "default": []},
            "wait_s": {"type": "float", "default": 2.0},
        },
        supports_check_mode=True,
    )
    follower = Follower(module)
    if not follower.wait():
        # Until the runner has written its first status, the one there is an earlier run's.
        old = follower.seen.get("run") == module.params["run_before"]
        current = {} if old else follower.seen
        module.exit_json(
            changed=False, finished=False, progress=campaign_files.progress(current), status=follower.status()
        )
    result, seen = follower.result(), follower.seen
    down = follower.production_down()
    if down:
        module.fail_json(
            msg=f"campaign {follower.name} has ended ({seen.get('message')}), but {', '.join(down)}, "
            f"which it had stopped, did not start again: systemctl status {down[0]}",
            **result,
        )
    state = seen.get("state")
    name = f"campaign {follower.name}"
    if state not in {"finished", "stopped", "failed"} or seen.get("run") == module.params["run_before"]:
        module.fail_json(
            msg=f"{name}: the runner ended without a last word (killed, or refused to start); it said: "
            f"{follower.last_lines()}. What was measured is kept: run again.",
            **result,
        )
    if state == "failed":
        module.fail_json(msg=f"{name}: {seen.get('message')}", **result)
    if state == "stopped":
        module.fail_json(
            msg=f"{name} was stopped before its end: {seen.get('message')}. Run again to go on.", **result
        )
    bad = campaign_files.not_ok(seen)
    if module.params["strict"] and bad:
        module.fail_json(
            msg=f"{name}: {bad} cells are not ok (bench_run_strict): {seen.get('message')}", **result
        )
    up_again = ", ".join(module.params["production"])
    again = f"; {up_again} started again" if up_again else ""
    module.exit_json(summary=f"{seen.get('message')}{again}", **result)


if __name__ == "__main__":
    main()
