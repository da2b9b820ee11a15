#!/usr/bin/python
"""Load NVIDIA's kernel modules on a host and make the GPUs' device nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pve_lxc_nodes
short_description: Load NVIDIA's kernel modules on a host and make the GPUs' device nodes
description:
  - Loads nvidia and nvidia-uvm where C(/proc/devices) lacks them, by C(nvidia-modprobe) or else C(modprobe).
  - Makes missing device nodes, replaces those with a wrong number, and opens those with too narrow a mode.
  - A regular file in a node's place is named and left alone, unless O(replace_files) allows to replace it.
options:
  load: {description: Load the modules., type: bool, default: true}
  make: {description: Make the nodes., type: bool, default: true}
  vmid:
    description: Also make the nodes of NVIDIA's that this container's file names; 0 for none.
    type: int
    default: 0
  conf_dir: {description: Folder of the containers' files., type: path, default: /etc/pve/lxc}
  expected_gpus: {description: How many GPUs the host should have; 0 when not known., type: int, default: 0}
  replace_files: {description: Replace a regular file by the device node., type: bool, default: false}
  limit_s: {description: How many seconds loading a module may take., type: int, default: 60}
  proc_devices: {description: The kernel's list of majors., type: path, default: /proc/devices}
  driver_dir: {description: The driver's folder in /proc., type: path, default: /proc/driver/nvidia}
  dev_dir: {description: Folder of the host's device nodes., type: path, default: /dev}
attributes:
  check_mode: {support: full, description: Of nodes whose major is known only after loading it says so.}
  diff_mode: {support: full, description: Each node's state before and after.}
author: [recover-and-bench]
"""

EXAMPLES = r"""
- name: Load nvidia-uvm and make the nodes of eight GPUs
  pve_lxc_nodes:
    expected_gpus: 8
"""

RETURN = r"""
loaded: {description: Modules that were (or would be) loaded., type: list, elements: str, returned: success}
made: {description: What was (or would be) done to which node., type: list, elements: str, returned: success}
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.pve_lxc import drivers, nodes
from ansible.module_utils.pve_lxc.commands import find, node_helper, runner
from ansible.module_utils.pve_lxc.conf import decode, parse
from ansible.module_utils.pve_lxc.errors import PveLxcError, Refused
from ansible.module_utils.pve_lxc.reporting import Step, joined
from ansible.module_utils.pve_lxc.rules import read_proc_devices
from ansible.module_utils.pve_lxc.store import ContainerFile

if TYPE_CHECKING:
    from ansible.module_utils.pve_lxc.conf import Config
    from ansible.module_utils.pve_lxc.nodes import Finding

ARGUMENTS: dict[str, dict[str, Any]] = {
    "load": {"type": "bool", "default": True},
    "make": {"type": "bool", "default": True},
    "vmid": {"type": "int", "default": 0},
    "conf_dir": {"type": "path", "default": "/etc/pve/lxc"},
    "expected_gpus": {"type": "int", "default": 0},
    "replace_files": {"type": "bool", "default": False},
    "limit_s": {"type": "int", "default": 60},
    "proc_devices": {"type": "path", "default": "/proc/devices"},
    "driver_dir": {"type": "path", "default": "/proc/driver/nvidia"},
    "dev_dir": {"type": "path", "default": "/dev"},
}
DONE = {"make": "made it", "replace": "replaced it", "chmod": "opened it"}
WOULD = {"make": "would make it", "replace": "would replace it", "chmod": "would open it"}


def load(params: dict[str, Any], *, check: bool) -> list[str]:
    proc_devices = Path(params["proc_devices"])
    if check:
        return drivers.missing_drivers(read_proc_devices(proc_devices))
    return drivers.load(proc_devices, runner(params["limit_s"]), find)


def make(params: dict[str, Any], *, check: bool) -> list[Finding]:
    """What was found wrong and put right. All refusals come before the first change."""
    dev_dir = Path(params["dev_dir"])
    minors = nodes.gpu_minors(Path(params["driver_dir"]), dev_dir, params["expected_gpus"])
    named = nodes.named_in(container_file(params)) if params["vmid"] else []
    needed = nodes.host_nodes(read_proc_devices(Path(params["proc_devices"])), minors, named)
    findings = nodes.inspect(needed, dev_dir, replace_files=params["replace_files"])
    wrong = [finding for finding in findings if finding.action != "keep"]
    refused = [finding.why for finding in wrong if finding.action == "refuse"]
    if refused:
        raise Refused(
            f"{'; '.join(refused)}. Nothing was changed. Look at it, remove it, or set "
            "pve_lxc_replace_files: true"
        )
    if not check:
        mendable = [finding for finding in wrong if finding.action != "wait"]
        nodes.put_right(mendable, dev_dir, node_helper(dev_dir, params["limit_s"]))
    return wrong


def container_file(params: dict[str, Any]) -> Config:
    file = ContainerFile(Path(params["conf_dir"]) / f"{params['vmid']}.conf", Path(params["conf_dir"]))
    return parse(decode(file.read()))


def report_load(loaded: list[str], step: Step, *, check: bool) -> dict[str, Any]:
    verb = "would load" if check else "loaded"
    outcome = f"{verb} {', '.join(loaded)}" if loaded else "nvidia and nvidia-uvm are loaded"
    return step.report(outcome, changed=bool(loaded))


def report_make(wrong: list[Finding], step: Step, *, check: bool) -> dict[str, Any]:
    done = [finding for finding in wrong if finding.action != "wait"]
    waiting = [finding.node.name for finding in wrong if finding.action == "wait"]
    verbs = WOULD if check else DONE
    parts = [f"{finding.why}: {verbs[finding.action]}" for finding in done]
    if waiting:
        parts.append(f"{', '.join(waiting)}: known only after the drivers are loaded")
    return step.report("; ".join(parts) or "all nodes are right", changed=bool(done))


def diff(wrong: list[Finding]) -> dict[str, str]:
    done = [finding for finding in wrong if finding.action != "wait"]
    after = [
        f"{finding.path} is {finding.node.major}:{finding.node.minor}, mode {nodes.MODE:04o}"
        for finding in done
    ]
    return {
        "before": "".join(f"{finding.why}\n" for finding in done),
        "after": "".join(f"{line}\n" for line in after),
    }


def main() -> None:
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    params, check = module.params, module.check_mode
    reports, loaded, wrong = [], [], []
    step = Step("load_modules")
    try:
        if params["load"]:
            loaded = load(params, check=check)
            reports.append(report_load(loaded, step, check=check))
        if params["make"]:
            step = Step("make_nodes")
            wrong = make(params, check=check)
            reports.append(report_make(wrong, step, check=check))
    except PveLxcError as exc:
        reports.append(step.report(f"failed: {exc}", changed=False))
        module.fail_json(msg=str(exc), loaded=loaded, **joined(reports))
    report = joined(reports)
    changed = any(entry["changed"] for entry in report["recovery"]["steps"])
    made = [f"{finding.action} {finding.path}" for finding in wrong if finding.action != "wait"]
    module.exit_json(changed=changed, loaded=loaded, made=made, diff=diff(wrong), **report)


if __name__ == "__main__":
    main()
