#!/usr/bin/python
"""Ask the control socket of a node for the state of its configurations."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_server_state
short_description: Ask the control socket of a node for the state of its configurations
description:
  - Speaks to the socket as the benchmark runner does, so an answer proves that the runner will get one.
options:
  node:
    description: Name of the node in messages.
    type: str
    required: true
  socket:
    description: Path of the control socket.
    type: path
    required: true
  configurations:
    description: Names of the configurations to ask for.
    type: list
    elements: str
    required: true
  timeout_s:
    description: Seconds to wait for an answer.
    type: int
    default: 30
attributes:
  check_mode:
    support: full
    description: Nothing is changed in either mode.
  diff_mode:
    support: none
author: recover-and-bench
"""

EXAMPLES = r"""
- name: Ask for the state
  inference_server_state:
    node: ct200
    socket: /run/inference-control.sock
    configurations: [tp1-auto]
"""

RETURN = r"""
states:
  description: The answer to C(show) by configuration.
  type: dict
  returned: always
"""

import json
import socket
from typing import Any

from ansible.module_utils.basic import AnsibleModule


def ask(path: str, verb: str, configuration: str, timeout_s: float) -> dict[str, Any]:
    """One request on a connection of its own, as the protocol has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(path)
        connection.sendall(json.dumps({"verb": verb, "configuration": configuration}).encode() + b"\n")
        received = b""
        while piece := connection.recv(65536):
            received += piece
    answer = json.loads(received)
    if not isinstance(answer, dict) or "ok" not in answer:
        raise ValueError(f"not an answer: {received[:200]!r}")
    return answer


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "socket": {"type": "path", "required": True},
            "configurations": {"type": "list", "elements": "str", "required": True},
            "timeout_s": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    given = module.params
    states = {}
    for name in given["configurations"]:
        try:
            states[name] = ask(given["socket"], "show", name, given["timeout_s"])
        except (OSError, ValueError) as exc:
            module.fail_json(
                msg=(
                    f"{given['node']}: {given['socket']} does not answer for {name}: {exc};"
                    " see systemctl status inference-control.socket and journalctl -t inference-control"
                )
            )
        if not states[name]["ok"]:
            module.fail_json(
                msg=f"{given['node']}: {given['socket']} refuses {name}: {states[name]['error']}"
            )
    module.exit_json(changed=False, states=states)


if __name__ == "__main__":
    main()
