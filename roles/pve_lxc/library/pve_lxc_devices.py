#!/usr/bin/python
"""Allow the GPUs' devices in a Proxmox VE container's file."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pve_lxc_devices
short_description: Allow the GPUs' devices in a Proxmox VE container's file
description:
  - Works out which device rules, mounts or C(devN) entries the container needs with the majors of the
    running kernel, and changes just those lines of its current configuration. Snapshots, pending changes,
    comments and everything else stay byte for byte.
  - Writes by Proxmox's rules. It holds Proxmox's own lock, compares the digest before it replaces the file,
    and renames a whole new file over it, with a backup outside C(/etc/pve).
  - Refuses a locked container, a template, an emptied file, and a host whose NVIDIA drivers are not loaded.
options:
  vmid: {description: The container's id., type: int, required: true}
  state:
    description: C(present) grants the devices; C(restored) undoes the newest change that this module made.
    type: str
    choices: [present, restored]
    default: present
  grant:
    description:
      - How to grant. C(auto) takes C(devices) from Proxmox VE 8.2 on, unless a hook or mounts do it.
    type: str
    choices: [auto, rules, devices]
    default: auto
  extra_majors: {description: Further character majors to allow., type: list, elements: int, default: []}
  former_majors:
    description: Majors that were NVIDIA's before; their rules are dropped when no NVIDIA driver has them now.
    type: list
    elements: int
    default: []
  expected_gpus: {description: GPUs that this container should have; 0 if not known., type: int, default: 0}
  pve_version: {description: Its version; asked with C(pveversion) when empty., type: str, default: ""}
  hot_plug:
    description: The container runs and may change meanwhile, so C(devN) is left to C(pct set) if it can.
    type: bool
    default: false
  drivers_pending:
    description: In check mode, an earlier step would load the drivers, whose majors are not known yet.
    type: bool
    default: false
  digest: {description: Refuse when the file's SHA-1 isn't this one., type: str, default: ""}
  backup: {description: "With C(restored), one backup's name; else the newest.", type: str, default: ""}
  force: {description: "With C(restored), restore over later changes of others.", type: bool, default: false}
  lock_limit_s: {description: Seconds to wait for Proxmox's lock on the file., type: float, default: 10}
  conf_dir: {description: Folder of the containers' files., type: path, default: /etc/pve/lxc}
  lock_dir: {description: Folder of Proxmox's locks., type: path, default: /run/lock/lxc}
  proc_devices: {description: The kernel's list of majors., type: path, default: /proc/devices}
  driver_dir: {description: The driver's folder in /proc., type: path, default: /proc/driver/nvidia}
  dev_dir: {description: Folder of the host's device nodes., type: path, default: /dev}
  backup_dir: {description: Folder of the backups., type: path, default: /var/lib/recover-and-bench/backups}
  records:
    description: File that records which majors were NVIDIA's.
    type: path
    default: /var/lib/recover-and-bench/majors.json
attributes:
  check_mode: {support: full, description: Nothing is written, not even the lock; all else is the same.}
  diff_mode: {support: full, description: The whole file before and after.}
author: [recover-and-bench]
"""

EXAMPLES = r"""
- name: Allow the GPUs' devices of the running kernel in container 200
  pve_lxc_devices:
    vmid: 200

- name: Undo our newest change of it
  pve_lxc_devices:
    vmid: 200
    state: restored
"""

RETURN = r"""
config_changed: {description: Whether the container's file changed., type: bool, returned: success}
mode: {description: C(rules) or C(devices)., type: str, returned: with state=present}
changes: {description: Each change in words., type: list, elements: str, returned: with state=present}
notes: {description: What was left alone and why., type: list, elements: str, returned: with state=present}
live_rules:
  description: What the container must be allowed, whether its file said so before or not.
  type: list
  elements: str
  returned: with state=present
deferred: {description: C(devN) entries left to C(pct set)., type: dict, returned: with state=present}
backup: {description: Path of the backup, or empty., type: str, returned: with state=present}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.pve_lxc.commands import pve_version
from ansible.module_utils.pve_lxc.errors import NotReady, PveLxcError
from ansible.module_utils.pve_lxc.reporting import Step, showable
from ansible.module_utils.pve_lxc.store import digest
from ansible.module_utils.pve_lxc.update import Outcome, Places, Wishes, restore, update

ARGUMENTS: dict[str, dict[str, Any]] = {
    "vmid": {"type": "int", "required": True},
    "state": {"type": "str", "choices": ["present", "restored"], "default": "present"},
    "grant": {"type": "str", "choices": ["auto", "rules", "devices"], "default": "auto"},
    "extra_majors": {"type": "list", "elements": "int", "default": []},
    "former_majors": {"type": "list", "elements": "int", "default": []},
    "expected_gpus": {"type": "int", "default": 0},
    "pve_version": {"type": "str", "default": ""},
    "hot_plug": {"type": "bool", "default": False},
    "drivers_pending": {"type": "bool", "default": False},
    "digest": {"type": "str", "default": ""},
    "backup": {"type": "str", "default": ""},
    "force": {"type": "bool", "default": False},
    "lock_limit_s": {"type": "float", "default": 10},
    "conf_dir": {"type": "path", "default": "/etc/pve/lxc"},
    "lock_dir": {"type": "path", "default": "/run/lock/lxc"},
    "proc_devices": {"type": "path", "default": "/proc/devices"},
    "driver_dir": {"type": "path", "default": "/proc/driver/nvidia"},
    "dev_dir": {"type": "path", "default": "/dev"},
    "backup_dir": {"type": "path", "default": "/var/lib/recover-and-bench/backups"},
    "records": {"type": "path", "default": "/var/lib/recover-and-bench/majors.json"},
}
PLACES = ("conf_dir", "lock_dir", "proc_devices", "driver_dir", "dev_dir", "backup_dir", "records")


def grant(params: dict[str, Any], places: Places, step: Step, *, check: bool) -> dict[str, Any]:
    version = params["pve_version"]
    if not version and params["grant"] == "auto":
        version = pve_version()
    wishes = Wishes(
        grant=params["grant"],
        extra_majors=params["extra_majors"],
        former_majors=params["former_majors"],
        expected_gpus=params["expected_gpus"],
        pve_version=version,
        lock_limit_s=params["lock_limit_s"],
        hot_plug=params["hot_plug"],
    )
    outcome = update(params["vmid"], places, wishes, check=check, expected=params["digest"])
    return {
        "changed": outcome.changed or outcome.records_changed,
        "config_changed": outcome.changed,
        "mode": outcome.plan.mode,
        "changes": outcome.plan.changes,
        "notes": outcome.plan.notes,
        "live_rules": outcome.plan.live_rules,
        "deferred": outcome.deferred,
        "backup": outcome.backup,
        "diff": diff(places.conf_dir / f"{params['vmid']}.conf", outcome.before, outcome.after),
        **step.report(sentence(outcome, check=check), changed=outcome.changed, **digests(outcome)),
    }


def sentence(outcome: Outcome, *, check: bool) -> str:
    if outcome.deferred and not outcome.changed:
        return f"left to the hot-plug: {'; '.join(outcome.plan.changes)}"
    if not outcome.changed:
        return "the file has all it needs" + (f" ({outcome.plan.notes[0]})" if outcome.plan.notes else "")
    return ("would " if check else "") + "; ".join(outcome.plan.changes)


def digests(outcome: Outcome) -> dict[str, str]:
    before, after = (text.encode("utf-8", "surrogateescape") for text in (outcome.before, outcome.after))
    return {"before": digest(before), "after": digest(after)}


def undo(params: dict[str, Any], places: Places, step: Step, *, check: bool) -> dict[str, Any]:
    name, force = params["backup"], params["force"]
    before, after = restore(params["vmid"], places, name=name, force=force, check=check)
    changed = before != after
    would = "would put" if check else "put"
    outcome = (
        f"{would} the file back as it was before our change" if changed else "the file is as it was before"
    )
    return {
        "changed": changed,
        "config_changed": changed,
        "diff": diff(places.conf_dir / f"{params['vmid']}.conf", before, after),
        **step.report(outcome, changed=changed),
    }


def diff(path: Path, before: str, after: str) -> dict[str, str]:
    return {
        "before": showable(before),
        "after": showable(after),
        "before_header": str(path),
        "after_header": str(path),
    }


def main() -> None:
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params = module.params
    places = Places(**{name: Path(params[name]) for name in PLACES})
    path = places.conf_dir / f"{params['vmid']}.conf"
    restoring = params["state"] == "restored"
    step = Step("restore_config" if restoring else "fix_config")
    work = undo if restoring else grant
    try:
        result = work(params, places, step, check=module.check_mode)
    except NotReady as exc:
        if not (module.check_mode and params["drivers_pending"]):
            module.fail_json(msg=f"{path}: {exc}", **step.report(f"refused: {exc}", changed=False))
        outcome = "the file's change can be told only after the drivers are loaded"
        result = {"changed": False, "config_changed": False, **step.report(outcome, changed=False)}
    except PveLxcError as exc:
        message = str(exc) if str(exc).startswith(str(path)) else f"{path}: {exc}"
        module.fail_json(msg=message, **step.report(f"failed: {exc}", changed=False))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
