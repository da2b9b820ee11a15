#!/usr/bin/python
"""Install the unit that prepares GPUs and container files at each boot of a Proxmox VE host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pve_lxc_boot_unit
short_description: Install the unit that prepares GPUs and container files at each boot of a Proxmox VE host
description:
  - Installs this role's pure code under C(/usr/local/lib/recover-and-bench), a settings file of the container
    under C(/etc/recover-and-bench/devices), and the unit, which is enabled but not started.
  - One call, since the code is what the module itself was sent with. Containers of one host can be added side
    by side.
options:
  vmid: {description: The container's id., type: int, required: true}
  state:
    description: C(absent) takes the container out; the unit stays and does nothing without containers.
    type: str
    choices: [present, absent]
    default: present
  unit: {description: Text of the unit., type: str, required: true}
  script: {description: Text of the program it starts., type: str, required: true}
  places: {description: Where things are on the host., type: dict, default: {}}
  wishes: {description: How the container's devices are granted., type: dict, default: {}}
  root: {description: Install below this folder; other than C(/) without systemctl., type: path, default: /}
attributes:
  check_mode: {support: full, description: Nothing is written.}
  diff_mode: {support: full, description: The unit and the settings; of the code, the names of changed files.}
author: [recover-and-bench]
"""

EXAMPLES = r"""
- name: Prepare container 200 at each boot
  pve_lxc_boot_unit:
    vmid: 200
    unit: "{{ lookup('ansible.builtin.template', 'recover-and-bench-devices.service.j2') }}"
    script: "{{ lookup('ansible.builtin.file', 'devices_at_boot.py') }}"
"""

RETURN = r"""
written:
  description: What was (or would be) written, removed or enabled.
  type: list
  elements: str
  returned: success
"""

import pkgutil
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.pve_lxc import (
    backups,
    boot,
    commands,
    conf,
    drivers,
    edit,
    errors,
    nodes,
    plan,
    plan_nodes,
    plan_rules,
    rules,
    settings,
    situation,
    store,
    update,
)
from ansible.module_utils.pve_lxc.commands import runner
from ansible.module_utils.pve_lxc.errors import PveLxcError
from ansible.module_utils.pve_lxc.reporting import Step

ARGUMENTS: dict[str, dict[str, Any]] = {
    "vmid": {"type": "int", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "unit": {"type": "str", "required": True},
    "script": {"type": "str", "required": True},
    "places": {"type": "dict", "default": {}},
    "wishes": {"type": "dict", "default": {}},
    "root": {"type": "path", "default": "/"},
}
UNIT = "recover-and-bench-devices.service"
UNIT_PATH = f"etc/systemd/system/{UNIT}"
LIBRARY = "usr/local/lib/recover-and-bench"
SETTINGS = str(boot.SETTINGS_DIR).lstrip("/")
# Every module that the boot program imports; all of them have come here with this one.
CODE = (
    backups,
    boot,
    commands,
    conf,
    drivers,
    edit,
    errors,
    nodes,
    plan,
    plan_nodes,
    plan_rules,
    rules,
    settings,
    situation,
    store,
    update,
)
_LIMIT_S = 30.0


def wanted_files(params: dict[str, Any]) -> dict[str, str]:
    """Each file's text by its path below the root. The unit comes last, when what it starts is there."""
    files = {f"{LIBRARY}/pve_lxc/__init__.py": source("ansible.module_utils.pve_lxc")}
    for module in CODE:
        name = module.__name__.rpartition(".")[2]
        files[f"{LIBRARY}/pve_lxc/{name}.py"] = source(module.__name__)
    files[f"{LIBRARY}/devices_at_boot.py"] = params["script"].rstrip("\n") + "\n"
    if params["state"] == "present":
        files[f"{SETTINGS}/{params['vmid']}.json"] = boot.settings(params["places"], params["wishes"])
    files[UNIT_PATH] = params["unit"].rstrip("\n") + "\n"
    return files


def source(module: str) -> str:
    package, _, name = module.rpartition(".")
    found = (
        pkgutil.get_data(module, "__init__.py")
        if name == "pve_lxc"
        else pkgutil.get_data(package, f"{name}.py")
    )
    if found is None:
        raise PveLxcError(f"the source of {module} did not come with this module")
    return found.decode()


def present(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def write(path: Path, text: str) -> None:
    """The whole file at once: a power cut in the middle must not leave half a unit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    temporary = Path(file.name)
    temporary.chmod(0o755 if path.name == "devices_at_boot.py" else 0o644)
    temporary.rename(path)


def require_good_unit(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / UNIT
        path.write_text(text)
        code, out, err = runner(_LIMIT_S)(["systemd-analyze", "verify", "--man=no", str(path)])
    # It also tells of faults in units that ours only names, so our own name decides.
    said = [line for line in (out + err).splitlines() if UNIT in line]
    if code != 0 and said:
        raise PveLxcError(f"systemd-analyze refuses the unit: {'; '.join(said)}")


def systemctl(*arguments: str) -> None:
    code, out, err = runner(_LIMIT_S)(["systemctl", *arguments])
    if code != 0:
        raise PveLxcError(
            f"`systemctl {' '.join(arguments)}` ended with {code}: {' '.join((err or out).split())}"
        )


def is_enabled() -> bool:
    return runner(_LIMIT_S)(["systemctl", "is-enabled", UNIT])[1].strip() == "enabled"


def install(params: dict[str, Any], *, check: bool) -> tuple[list[str], dict[str, str]]:
    """(what changes, diff)."""
    root = Path(params["root"])
    live = root == Path("/")
    files = wanted_files(params)
    stale = {path: text for path, text in files.items() if present(root / path) != text}
    gone = root / SETTINGS / f"{params['vmid']}.json"
    removed = [str(gone)] if params["state"] == "absent" and gone.exists() else []
    shown = [path for path in stale if path == UNIT_PATH or path.startswith(SETTINGS)]
    code = [f"{path}\n" for path in stale if path not in shown]
    diff = {
        "before": "".join(present(root / path) for path in shown),
        "after": "".join([*(stale[path] for path in shown), *code]),
    }
    enable = live and not is_enabled()
    changes = [*(str(root / path) for path in stale), *removed, *([f"enable {UNIT}"] if enable else [])]
    if check:
        return changes, diff
    for path, text in stale.items():
        if path == UNIT_PATH and live:
            require_good_unit(text)
        write(root / path, text)
    for path in removed:
        Path(path).unlink()
    if live and UNIT_PATH in stale:
        systemctl("daemon-reload")
    if enable:
        systemctl("enable", UNIT)
    return changes, diff


def main() -> None:
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    step = Step("boot_unit")
    try:
        changes, diff = install(module.params, check=module.check_mode)
    except (PveLxcError, OSError) as exc:
        module.fail_json(msg=f"the boot unit can't be installed: {exc}")
    would = "would install" if module.check_mode else "installed"
    outcome = f"{would} the boot unit ({len(changes)} changes)" if changes else "the boot unit is installed"
    module.exit_json(
        changed=bool(changes), written=changes, diff=diff, **step.report(outcome, changed=bool(changes))
    )


if __name__ == "__main__":
    main()
