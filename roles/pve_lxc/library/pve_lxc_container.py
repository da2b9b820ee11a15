#!/usr/bin/python
"""Start, restart or hot-plug a Proxmox VE container, after a look at whom that would hurt."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pve_lxc_container
short_description: Start, restart or hot-plug a Proxmox VE container, after a look at whom that would hurt
description:
  - Goes through C(pct) and decides by the status it prints. A container under Proxmox's high availability
    only gets a request that way, so its status is polled.
  - Before a restart, looks for a running benchmark campaign, for other people's processes that hold the GPU
    and for a Proxmox lock, names them and refuses. O(force) goes on in spite of campaign and processes, never
    of a lock.
  - Waits until the container's init is up, and returns the seconds as C(waited_s.boot).
options:
  vmid: {description: The container's id., type: int, required: true}
  state:
    description:
      - C(started), C(restarted) and C(hot_plugged) change the container.
      - C(running) waits for a container that something else starts.
      - C(host_idle) checks that a reboot of the host would hurt nobody, in any container.
    type: str
    choices: [started, restarted, hot_plugged, running, host_idle]
    required: true
  allowed: {description: Whether the operator allows a restart., type: bool, default: false}
  force: {description: Go on in spite of a campaign or other people's processes., type: bool, default: false}
  rules:
    description: With C(hot_plugged), device rules to allow at once.
    type: list
    elements: str
    default: []
  devices: {description: "With C(hot_plugged), C(devN) entries for C(pct set).", type: dict, default: {}}
  campaign_units:
    description: Units of a running campaign.
    type: list
    elements: str
    default: [bench-run-*]
  own_units:
    description: Units whose GPU processes are no one else's.
    type: list
    elements: str
    default: [inference-*, bench-run-*, model-stage-*]
  shutdown_s: {description: Seconds for a clean shutdown before it is forced., type: int, default: 60}
  start_s: {description: Seconds until the container's init must be up., type: int, default: 120}
  undo_config:
    description:
      - The container's file was changed just before. If the container can't be started with it, put the file
        back, and start the container as it ran before.
    type: bool
    default: false
  spent_s: {description: "With C(running), the seconds that the host's reboot took.", type: float, default: 0}
  conf_dir: {description: Folder of the containers' files., type: path, default: /etc/pve/lxc}
  lock_dir: {description: Folder of Proxmox's locks., type: path, default: /run/lock/lxc}
  backup_dir: {description: Folder of the backups., type: path, default: /var/lib/recover-and-bench/backups}
  ha_resources: {description: Proxmox's HA resources., type: path, default: /etc/pve/ha/resources.cfg}
  dev_dir: {description: Folder of the host's device nodes., type: path, default: /dev}
attributes:
  check_mode: {support: full, description: The checks and refusals are the same; the container is left alone.}
  diff_mode: {support: full, description: The status before and after.}
author: [recover-and-bench]
"""

EXAMPLES = r"""
- name: Restart container 200 so that its new device rules count
  pve_lxc_container:
    vmid: 200
    state: restarted
    allowed: true
"""

RETURN = r"""
before: {description: Status before., type: str, returned: success}
after: {description: Status after., type: str, returned: success}
waited_s: {description: Seconds that the container took to stop and start., type: dict, returned: when it did}
"""

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.pve_lxc.commands import runner
from ansible.module_utils.pve_lxc.consent import Consent, require_host_idle, require_restart
from ansible.module_utils.pve_lxc.container import Container, Limits, is_ha_managed
from ansible.module_utils.pve_lxc.errors import PveLxcError, Refused
from ansible.module_utils.pve_lxc.reporting import Step
from ansible.module_utils.pve_lxc.update import Places, restore

ARGUMENTS: dict[str, dict[str, Any]] = {
    "vmid": {"type": "int", "required": True},
    "state": {
        "type": "str",
        "choices": ["started", "restarted", "hot_plugged", "running", "host_idle"],
        "required": True,
    },
    "allowed": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "rules": {"type": "list", "elements": "str", "default": []},
    "devices": {"type": "dict", "default": {}},
    "campaign_units": {"type": "list", "elements": "str", "default": ["bench-run-*"]},
    "own_units": {
        "type": "list",
        "elements": "str",
        "default": ["inference-*", "bench-run-*", "model-stage-*"],
    },
    "shutdown_s": {"type": "int", "default": 60},
    "start_s": {"type": "int", "default": 120},
    "undo_config": {"type": "bool", "default": False},
    "spent_s": {"type": "float", "default": 0},
    "conf_dir": {"type": "path", "default": "/etc/pve/lxc"},
    "lock_dir": {"type": "path", "default": "/run/lock/lxc"},
    "backup_dir": {"type": "path", "default": "/var/lib/recover-and-bench/backups"},
    "ha_resources": {"type": "path", "default": "/etc/pve/ha/resources.cfg"},
    "dev_dir": {"type": "path", "default": "/dev"},
}
STEPS = {
    "started": "start_container",
    "restarted": "restart_container",
    "hot_plugged": "hot_plug",
    "running": "reboot_host",
    "host_idle": "reboot_host",
}
_SPARE_S = 30  # pct's own time around a shutdown that takes its whole limit


class Work:
    """One call: `before`, what is done, `after`."""

    def __init__(self, params: dict[str, Any], *, check: bool) -> None:
        self.params = params
        self.check = check
        limits = Limits(params["shutdown_s"], params["start_s"])
        longest = max(params["shutdown_s"], params["start_s"]) + _SPARE_S
        ha = is_ha_managed(Path(params["ha_resources"]), params["vmid"])
        self.container = Container(params["vmid"], runner(longest), limits, ha_managed=ha)
        self.consent = Consent(
            conf_dir=Path(params["conf_dir"]),
            dev_dir=Path(params["dev_dir"]),
            campaign_units=params["campaign_units"],
            own_units=params["own_units"],
            force=params["force"],
        )
        self.waited_s = 0.0
        self.plugged = True

    def started(self, before: str) -> str:
        if before == "running":
            return "it runs already"
        self.consent.require_unlocked(self.container.vmid)
        if self.check:
            return "would start it"
        self._start(before)
        return f"started it; up after {self.waited_s:.1f} s"

    def restarted(self, before: str) -> str:
        self._require_consent()
        if self.check:
            return "would restart it" if before == "running" else "would start it"
        if before == "running":
            self._timed(self.container.stop)
        self._start(before)
        return f"restarted it; up after {self.waited_s:.1f} s"

    def _require_consent(self) -> None:
        try:
            require_restart(self.consent, self.container, allowed=self.params["allowed"])
        except Refused as exc:
            if not self.params["undo_config"]:
                raise
            raise Refused(f"{exc}. Its file is repaired already and counts from its next start on") from exc

    def _start(self, before: str) -> None:
        """Start it; where that fails, leave it as it was found, and say in any case how it is now."""
        try:
            self._timed(self.container.start)
        except PveLxcError as exc:
            undone = [self._undo(before)] if self.params["undo_config"] else []
            now = f"it was {before} before and is {self._now()} now"
            raise PveLxcError("; ".join([str(exc), *undone, now])) from exc

    def _undo(self, before: str) -> str:
        places = Places(
            conf_dir=Path(self.params["conf_dir"]),
            lock_dir=Path(self.params["lock_dir"]),
            backup_dir=Path(self.params["backup_dir"]),
        )
        try:
            restore(self.params["vmid"], places)
            if before == "running" and self.container.status() != "running":
                self._timed(self.container.start)
        except PveLxcError as exc:
            return f"its file and state could not be put back: {exc}"
        return "its file is again as it was found"

    def hot_plugged(self, before: str) -> str:
        rules, devices = self.params["rules"], self.params["devices"]
        if before != "running" or not (rules or devices):
            return "nothing to plug in"
        what = [*(f"`{rule}`" for rule in rules), *(f"{key} {value}" for key, value in devices.items())]
        if self.check:
            return f"would allow it while it runs: {', '.join(what)}"
        try:
            self.container.allow_now(rules)
            self.container.plug_in(devices)
        except PveLxcError as exc:  # the next step of the ladder, a restart, does the same more dearly
            self.plugged = False
            return f"it can't be changed while it runs: {exc}"
        return f"allowed it while it runs: {', '.join(what)}"

    def running(self, before: str) -> str:
        if self.check:
            return "would reboot the host and wait for the container"
        self.waited_s = self.params["spent_s"]
        self._timed(self.container.await_running)
        return f"the host was rebooted, its container is up (it was {before} when first asked)"

    def host_idle(self, before: str) -> str:
        require_host_idle(self.consent, self.container, allowed=self.params["allowed"])
        return f"nothing stands against a reboot of the host (container: {before})"

    def _timed(self, work: Any) -> None:  # noqa: ANN401 - a method without arguments
        started = time.monotonic()
        try:
            work()
        finally:
            self.waited_s += time.monotonic() - started

    def _now(self) -> str:
        try:
            return self.container.status()
        except PveLxcError:
            return "in a state that can't be read"


def changes(state: str, before: str, params: dict[str, Any]) -> bool:
    """The same answer in check mode and for real."""
    plugs = bool(params["rules"] or params["devices"]) and before == "running"
    made = {"started": before != "running", "restarted": True, "hot_plugged": plugs, "running": True}
    return made.get(state, False)


def main() -> None:
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    step = Step(STEPS[params["state"]])
    step.started -= params["spent_s"]
    work = Work(params, check=module.check_mode)
    try:
        before = work.container.status()
        outcome = getattr(work, params["state"])(before)
        after = work.container.status()
    except PveLxcError as exc:
        kind = "refused" if isinstance(exc, Refused) else "failed"
        module.fail_json(
            msg=str(exc), refused=kind == "refused", **step.report(f"{kind}: {exc}", changed=False)
        )
    changed = work.plugged and changes(params["state"], before, params)
    result = {"changed": changed, "before": before, "after": after}
    if work.waited_s:
        result["waited_s"] = {"boot": round(work.waited_s, 2)}
    if params["state"] in ("started", "restarted"):
        expected = "running" if module.check_mode else after
        again = " again" if changed and before == "running" else ""
        result["diff"] = {"before": f"{before}\n", "after": f"{expected}{again}\n"}
    module.exit_json(**result, **step.report(outcome, changed=changed))


if __name__ == "__main__":
    main()
