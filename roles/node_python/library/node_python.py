#!/usr/bin/python
"""Compare a node's venv with what is wanted, and install it from archives that were brought."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_python
short_description: A venv on the node, from a wheelhouse built on the controller
description:
  - Called by the action plugin of the same name, at most twice. The first call compares; the second, only
    when something is to be installed, gets the archives.
  - The venv is a link to a versioned folder. It is replaced by one rename, so nobody sees half of it.
options:
  venv:
    description: Path of the venv on the node.
    type: path
    required: true
  interpreter:
    description: The Python to make it with; empty for the one that Ansible uses.
    type: str
    default: ''
  requirements_digest:
    description: Digest of the pinned requirements.
    type: str
    required: true
  packages_digest:
    description: Digest of the project's own packages; empty for none.
    type: str
    default: ''
  apply:
    description: Install what differs; without it only compare.
    type: bool
    default: false
  wheelhouse:
    description: Archive of wheels on the node, with its sha256.
    type: dict
  sources:
    description: Archive of the project's own packages on the node, with its sha256.
    type: dict
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    description: The action plugin adds the diff.
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Install the runner's packages
  node_python:
    name: bench-runner
    venv: /opt/recover-and-bench/bench-runner
    requirements: "{{ role_path }}/files/requirements.txt"
    packages_src: ["{{ role_path }}/files/bench_runner"]
    cache: .cache/wheelhouse
"""
RETURN = r"""
python:
  description: What the node's Python is (version, machine, glibc).
  returned: always
  type: dict
environment_faults:
  description: Why the venv must be made anew; empty when it is right.
  returned: always
  type: list
source_faults:
  description: Why the project's packages must be put there anew; empty when they are right.
  returned: always
  type: list
pins:
  description: The installed packages.
  returned: always
  type: list
"""

import os
import sys
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_python import install, marker
from ansible.module_utils.node_python.interpreter import QUESTION, read_answer


def ask_python(module: AnsibleModule, path: str) -> dict[str, Any]:
    """What the node's Python is, or the module's failure."""
    try:
        rc, out, err = module.run_command([path, "-I", "-c", QUESTION], handle_exceptions=False)
        return read_answer(path, rc, out, err)
    except ValueError as exc:
        return module.fail_json(msg=str(exc))
    except OSError as exc:
        return module.fail_json(msg=f"{path} does not run: {exc.strerror}")


def apply(run: install.Run, venv: Path, python: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Install from the archives that are there; one installation at a time."""
    given = {key: archive(wanted[key]) for key in ("wheelhouse", "sources") if wanted[key]}
    install.require_room(venv, list(given.values()))
    for pushed in given.values():
        install.require_whole(pushed)
    with install.held(venv):
        if "wheelhouse" in given:
            install.install_environment(run, venv, python, wanted["requirements_digest"], given["wheelhouse"])
        if "sources" in given:
            install.install_sources(run, venv, python, wanted["packages_digest"], given["sources"])
        elif not wanted["packages_digest"]:
            install.link_sources(venv, python, None)
        install.prune(venv, wanted["packages_digest"])


def archive(given: dict[str, Any]) -> install.Archive:
    return install.Archive(Path(given["path"]), given["sha256"])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "venv": {"type": "path", "required": True},
            "interpreter": {"type": "str", "default": ""},
            "requirements_digest": {"type": "str", "required": True},
            "packages_digest": {"type": "str", "default": ""},
            "apply": {"type": "bool", "default": False},
            "wheelhouse": {"type": "dict"},
            "sources": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)  # other users run what is installed here
    wanted = module.params
    venv = Path(wanted["venv"])
    python = ask_python(module, wanted["interpreter"] or sys.executable)

    def run(command: list[str]) -> tuple[int, str, str]:
        return module.run_command(command, environ_update={"PYTHONNOUSERSITE": "1"})

    changed = wanted["apply"] and not module.check_mode
    if changed:
        try:
            apply(run, venv, python, wanted)
        except install.InstallError as exc:
            module.fail_json(msg=str(exc))
        except OSError as exc:
            module.fail_json(msg=f"could not install into {venv}: {exc.strerror} ({exc.filename})")
    module.exit_json(
        changed=changed,
        python=python,
        environment_faults=marker.environment_faults(venv, python, wanted["requirements_digest"]),
        source_faults=marker.source_faults(venv, python, wanted["packages_digest"]),
        pins=marker.read_marker(venv.resolve()).get("pins", []),
    )


if __name__ == "__main__":
    main()
