"""Wait for a machine to answer, and say which link is down while it does not."""

from __future__ import annotations

DOCUMENTATION = """
    module: link_wait
    short_description: waits until a machine answers as root
    description:
      - Tries the connection again and again. While it fails, says which link is down - nothing answers, no
        sshd yet, sshd refuses the key, the host key is not the known one, no root.
      - What waiting can't mend (host key, login, root) ends the wait at once.
    options:
      limit_s:
        description: How long the machine may take to answer.
        type: float
        required: true
      optional:
        description: >-
          Whether a machine that stays silent is a finding (C(up) false, and a line that says why) and not a
          failure. One that refuses is a failure in any case.
        type: bool
        default: false
"""

import contextlib
import re
import socket
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

TCP_TIMEOUT_S = 2.0
# Between two looks at a machine that does not answer.
PAUSE_S = 1.0

# What ssh or sudo says -> (state, what to do). Waiting mends none of these.
REFUSALS = (
    (
        re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED"),
        "host_key",
        (
            "its host key is another than the one in known_hosts: if it was installed anew, forget the "
            "old one with ssh-keygen -R; if not, don't connect"
        ),
    ),
    (
        re.compile(r"host key verification failed", re.IGNORECASE),
        "host_key",
        "its host key is not in known_hosts yet: connect once by hand",
    ),
    (
        re.compile(r"permission denied \(", re.IGNORECASE),
        "login_refused",
        "sshd is up but refuses this user's key: check ansible_user and the key in authorized_keys",
    ),
    (
        re.compile(
            r"a password is required|not in the sudoers|may not run|missing sudo password|"
            r"sudo: .*command not found|incorrect sudo password",
            re.IGNORECASE,
        ),
        "sudo_refused",
        "the login works but sudo refuses: allow it, or give the password with --ask-become-pass",
    ),
)

FINAL = {state for _, state, _ in REFUSALS} | {"no_root"}


class ActionModule(ActionBase):
    """See DOCUMENTATION."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _, args = self.validate_argument_spec(
            argument_spec={
                "limit_s": {"type": "float", "required": True},
                "optional": {"type": "bool", "default": False},
            },
        )
        name = str(self._task.delegate_to or (task_vars or {}).get("inventory_hostname"))
        began_s = time.monotonic()
        said = ""
        while True:
            state, advice = self._look()
            waited_s = time.monotonic() - began_s
            if state == "up" or state in FINAL or waited_s >= args["limit_s"]:
                break
            if advice != said:
                self._display.display(f"  {name:<8} {advice}; waiting up to {args['limit_s']:g} s")
                said = advice
            time.sleep(min(PAUSE_S, args["limit_s"] - waited_s))
        result.update(changed=False, up=state == "up", state=state, advice=advice)
        if said:
            result["waited_s"] = {"boot": round(waited_s, 2)}
        if state in FINAL or (state != "up" and not args["optional"]):
            limit = "" if state in FINAL else f" within {args['limit_s']:g} s (wait_limit_s)"
            result.update(failed=True, msg=f"{name} ({self._address()}) is not usable{limit}: {advice}.")
        elif state == "up":
            if not args["optional"]:
                result["summary"] = f"{name} answers as root" + (f" after {waited_s:.0f} s" if said else "")
        else:
            result["summary"] = f"left out here: {advice}"
        return result

    def _address(self) -> str:
        return str(self._connection.get_option("host") if self._is_ssh() else self._connection.transport)

    def _is_ssh(self) -> bool:
        return str(self._connection.transport) == "ssh"

    def _look(self) -> tuple[str, str]:
        """One try: `(state, words)`; state is `up` or names the link that is down."""
        # A connection kept from before the reboot would hang; some connections keep none.
        with contextlib.suppress(AnsibleError, AttributeError):
            self._connection.reset()
        try:
            answer = self._low_level_execute_command("id -u", sudoable=True)
        except AnsibleConnectionFailure as exc:
            return self._refusal(str(exc)) or self._silence()
        except AnsibleError as exc:
            return self._refusal(str(exc)) or ("broken", str(exc).splitlines()[0])
        said = f"{answer.get('stdout', '')}\n{answer.get('stderr', '')}"
        if answer.get("rc") != 0:
            return self._refusal(said) or self._silence()
        if answer.get("stdout", "").split()[-1:] != ["0"]:
            return (
                "no_root",
                "the login works but is not root, and root is needed: set ansible_become: true for it",
            )
        return "up", "answers"

    def _refusal(self, said: str) -> tuple[str, str] | None:
        return next(((state, advice) for words, state, advice in REFUSALS if words.search(said)), None)

    def _silence(self) -> tuple[str, str]:
        """Tell a silent host from one that is up but has no sshd yet."""
        if not self._is_ssh():
            return "silent", "its connection gives no answer"
        address, port = self._address(), int(self._connection.get_option("port") or 22)
        try:
            with socket.create_connection((address, port), timeout=TCP_TIMEOUT_S) as link:
                link.settimeout(TCP_TIMEOUT_S)
                banner = link.recv(64)
        except ConnectionRefusedError:
            return "no_sshd", f"the machine is up but nothing listens on port {port}: sshd has not started"
        except socket.gaierror:
            return "no_address", f"the name {address} has no address: check ansible_host in the inventory"
        except OSError:
            return "silent", f"nothing answers at {address}: switched off, still booting, or no network"
        if not banner.startswith(b"SSH-"):
            return "not_ssh", f"port {port} of {address} answers, but not as an ssh server"
        return "booting", "sshd answers but accepts no session yet: still booting"
