#!/usr/bin/python
"""Put the units and descriptions of all configurations on a node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_server_units
short_description: Put the units and descriptions of all configurations on a node
description:
  - Compares the wanted files with those on the node, has systemd check the new units, writes them whole,
    removes what belonged to configurations that are gone, and has systemd read its units once.
  - Units that run are never restarted and never removed; it is said where that matters.
options:
  node:
    description: Name of the node in messages.
    type: str
    required: true
  files:
    description: Wanted files; each with C(path), C(content) and C(mode) (a text such as "0644").
    type: list
    elements: dict
    required: true
  configurations:
    description: Names of the configurations that C(files) describes.
    type: list
    elements: str
    required: true
  keep:
    description: Names of configurations that are wanted but can't be described yet; theirs is left as it is.
    type: list
    elements: str
    default: []
  unit_dir:
    description: Folder of the units. In one that systemd doesn't read, systemd isn't told of anything.
    type: path
    required: true
  description_dir:
    description: Folder of the descriptions.
    type: path
    required: true
  socket:
    description: Name of the control socket's unit.
    type: str
    default: inference-control.socket
  engines:
    description: Build and adapter by engine, for the report.
    type: dict
    default: {}
  notes:
    description: What an operator should know of how the units were made; said in the summary.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author: recover-and-bench
"""

EXAMPLES = r"""
- name: Write the units
  inference_server_units:
    node: ct200
    configurations: [tp1-auto]
    files:
      - path: /etc/systemd/system/inference-tp1-auto.service
        content: "[Service]\nExecStart=/usr/bin/true\n"
        mode: "0644"
    unit_dir: /etc/systemd/system
    description_dir: /etc/inference-server/configurations
"""

RETURN = r"""
manager:
  description: Whether systemd runs here and reads that folder.
  type: bool
  returned: always
socket_ready:
  description: Whether the control socket listens and is enabled.
  type: bool
  returned: always
socket_changed:
  type: bool
  returned: always
running:
  description: Units of configurations that run.
  type: list
  elements: str
  returned: always
summary:
  description: One line of what was found and done.
  type: str
  returned: always
"""

import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.inference_server import deployment
from ansible.module_utils.inference_server.configurations import unit_name

ARGUMENTS = {
    "node": {"type": "str", "required": True},
    "files": {"type": "list", "elements": "dict", "required": True},
    "configurations": {"type": "list", "elements": "str", "required": True},
    "keep": {"type": "list", "elements": "str", "default": []},
    "unit_dir": {"type": "path", "required": True},
    "description_dir": {"type": "path", "required": True},
    "socket": {"type": "str", "default": "inference-control.socket"},
    "engines": {"type": "dict", "default": {}},
    "notes": {"type": "list", "elements": "str", "default": []},
}


def systemd_is_concerned(module: AnsibleModule, booted: Path = Path("/run/systemd/system")) -> bool:
    """Whether systemd reads the folder; one that it would read, on a machine without systemd, is refused."""
    if module.params["unit_dir"] not in deployment.UNIT_FOLDERS:
        return False
    if not booted.is_dir():
        module.fail_json(
            msg=f"{module.params['node']}: systemd does not run here, so nothing could start the engines"
        )
    return True


def verify(
    module: AnsibleModule, wanted: list[deployment.WantedFile], changes: list[deployment.Change]
) -> None:
    """Have systemd check the changed units beside those they refer to; fails with its own words."""
    names = [change.path.name for change in changes if change.is_unit]
    if not names or (module.check_mode and deployment.missing_programs(changes)):
        return
    with tempfile.TemporaryDirectory(dir=module.tmpdir) as folder:
        for file in wanted:
            if file.is_unit:
                (Path(folder) / file.path.name).write_text(file.content, encoding="utf-8")
        program = module.get_bin_path("systemd-analyze", required=True)
        paths = [str(Path(folder) / name) for name in names]
        _, out, err = module.run_command([program, "verify", "--man=no", *paths])
    faults = deployment.find_faults((out + err).splitlines(), names)
    if faults:
        module.fail_json(
            msg=f"{module.params['node']}: systemd refuses the units, none was written: {'; '.join(faults)}"
        )


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given: dict[str, Any] = module.params
    unit_dir, description_dir = Path(given["unit_dir"]), Path(given["description_dir"])
    names = given["configurations"]
    wanted = [
        deployment.WantedFile(Path(file["path"]), file["content"], int(file["mode"], 8))
        for file in given["files"]
    ]

    def systemctl(arguments: Any) -> str:  # noqa: ANN401 - a sequence of str; the annotation is in deployment
        program = module.get_bin_path("systemctl", required=True)
        status, out, err = module.run_command([program, *arguments])
        if status != 0:
            module.fail_json(msg=f"{given['node']}: systemctl {' '.join(arguments)}: {err.strip()}")
        return str(out)

    changes = deployment.compare(wanted)
    gone = deployment.find_gone(unit_dir, description_dir, [*names, *given["keep"]])
    manager = systemd_is_concerned(module)
    state = deployment.State()
    if manager:
        units = [unit_name(name) for name in (*names, *given["keep"], *gone)]
        state = deployment.read_state([*units, given["socket"]], systemctl)
    refused = sorted(name for name in gone if state.runs(unit_name(name)))
    removed = sorted(name for name in gone if name not in refused)
    verify(module, wanted, changes)
    changes += deployment.removals([path for name in removed for path in gone[name]])

    reload = manager and (any(change.is_unit for change in changes) or bool(state.stale))
    if not module.check_mode:
        # Units before descriptions: a description promises that its unit is there.
        for change in sorted(changes, key=lambda change: (change.after is None, not change.is_unit)):
            deployment.apply_change(change)
        if reload:
            systemctl(["daemon-reload"])
    for note in deployment.tell(given["node"], changes, refused, state):
        module.warn(note)
    builds = ", ".join(
        str(engine.get("build") or "not installed yet") for engine in given["engines"].values()
    )
    summary = deployment.summarize(names, changes, removed, given["keep"], check_mode=module.check_mode)
    module.exit_json(
        changed=bool(changes) or reload,
        diff=[change.diff() for change in changes],
        manager=manager,
        summary="; ".join(filter(None, [summary, builds, *given["notes"]])),
        recovery={"engines": given["engines"]},
        **deployment.as_result(state, given["socket"], changes),
    )


if __name__ == "__main__":
    main()
