#!/usr/bin/python
"""Let a node serve its published models to other nodes for the time of their copy, and end that."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_stage_serve
short_description: A transient unit that serves published models to a few addresses
options:
  state:
    description: Whether it serves.
    type: str
    choices: [started, stopped]
    required: true
  address:
    description: Where to listen; the other nodes reach it there.
    type: str
  port:
    description: The port.
    type: int
  allow:
    description: The addresses, or names, of those that may ask.
    type: list
    elements: str
    default: []
  root:
    description: The folder with the published models.
    type: path
  user:
    description: System user that serves; empty for the connection's user.
    type: str
    default: ''
  limit_s:
    description: Seconds after which the unit ends in any case.
    type: int
    default: 14400
  program:
    description: The stager, as the lookup C(model_stage_program) packs it.
    type: dict
  program_dir:
    description: Where the stager is kept on the node.
    type: path
  invocation:
    description: With O(state=stopped), the unit of which start; a newer one is left alone.
    type: str
    default: ''
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Serve to one other node
  model_stage_serve:
    state: started
    address: 10.77.0.20
    port: 8790
    allow: [10.77.0.21]
    root: /dev/shm
    user: model-stager
    program: "{{ lookup('model_stage_program', role_path ~ '/files/model_stager') }}"
    program_dir: /opt/recover-and-bench/model-stager
"""
RETURN = r"""
url:
  description: Where the root is served.
  returned: when it serves
  type: str
invocation:
  description: Systemd's name for this start of the unit.
  returned: when it serves
  type: str
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.model_stage import program, runner, serving


def addresses(names: list[str]) -> tuple[str, ...]:
    """As the server will see them: a name of the inventory may stand for several."""
    found: set[str] = set()
    for name in names:
        try:
            found |= {str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
        except OSError as exc:  # noqa: PERF203 - the name that fails is the news
            raise serving.ServeError(f"the name {name} can't be resolved here: {exc.strerror}") from exc
    return tuple(sorted(found))


def serve(module: AnsibleModule, wanted: dict[str, Any]) -> dict[str, str]:
    if not Path("/run/systemd/system").is_dir():
        raise serving.ServeError("its init is not systemd")
    runner.ensure_user(wanted["user"], module.run_command, check_mode=False)
    base, digest = Path(wanted["program_dir"]), wanted["program"]["digest"]
    if not program.is_installed(base, digest):
        program.install(base, digest, wanted["program"]["zip"])
    server = serving.Server(
        root=wanted["root"],
        address=addresses([wanted["address"]])[0],
        port=wanted["port"],
        allow=addresses(wanted["allow"]),
        user=wanted["user"],
        limit_s=wanted["limit_s"],
    )
    folder = str(program.version_folder(base, digest))
    invocation = serving.start(module.run_command, server, sys.executable, folder)
    return {"url": server.url, "invocation": invocation}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "stopped"], "required": True},
            "address": {"type": "str"},
            "port": {"type": "int"},
            "allow": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path"},
            "user": {"type": "str", "default": ""},
            "limit_s": {"type": "int", "default": 14400},
            "program": {"type": "dict", "no_log": True},
            "program_dir": {"type": "path"},
            "invocation": {"type": "str", "default": ""},
        },
        required_if=[
            ("state", "started", ("address", "port", "root", "program", "program_dir")),
            ("state", "stopped", ("invocation",)),
        ],
        supports_check_mode=True,
    )
    os.umask(0o022)
    wanted = module.params
    if module.check_mode:
        module.exit_json(changed=True)
    if wanted["state"] == "stopped":
        module.exit_json(changed=serving.stop(module.run_command, wanted["invocation"]))
    try:
        answer = serve(module, wanted)
    except (serving.ServeError, runner.StartError) as exc:
        module.fail_json(msg=str(exc))
    # What serves is gone again when the run ends, so nothing is changed that stays.
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
