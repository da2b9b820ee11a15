"""From ssh's own words to the link that is down. Works through jump hosts too, since only ssh is asked.

Pure; runs on the controller.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .evidence import mapping, real, text, truth

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS = (
    ("name_unknown", r"Could not resolve hostname|Name or service not known|nodename nor servname"),
    (
        "host_key",
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|No .* host key is known",
    ),
    (
        "login_refused",
        r"Permission denied|Too many authentication failures|Authentication failed|Invalid/incorrect",
    ),
    ("refused", r"Connection refused"),
    (
        "closed",
        r"kex_exchange|banner exchange|Connection (closed|reset)|booting up|nologin|Broken pipe|mux_client",
    ),
    ("silent", r"timed? ?out|No route to host|Network is unreachable|Host is (down|unreachable)"),
    (
        "sudo_refused",
        r"(sudo|become|su).*password|Missing sudo|not in the sudoers|may not run sudo|incorrect.*sudo",
    ),
    ("python_missing", r"interpreter .* was not found|/usr/bin/python\S*: (not found|No such file)"),
)
_PATTERNS = tuple((state, re.compile(pattern, re.IGNORECASE)) for state, pattern in _WORDS)
# The states that end by themselves when a machine boots.
WORDS = {
    "silent": "does not answer",
    "refused": "answers, but its sshd is not up",
    "closed": "answers, but its sshd is not ready",
}
WAITABLE = frozenset(WORDS)
# A container that has only just started may not have its sshd up.
YOUNG_S = 60.0


def classify(message: str) -> str:
    """One word for what ssh, sudo or Ansible said."""
    for state, pattern in _PATTERNS:
        if pattern.search(message):
            return state
    return "failed"


def container_state(host: Mapping[str, Any], vmid: int) -> str:
    """Running | stopped | starting | locked | missing | unknown."""
    facts = mapping(host, "containers", str(vmid))
    if truth(facts, "config_exists") is False:
        return "missing"
    state = text(facts, "status", "state")
    if (
        state == "stopped"
        and truth(host, "guests_starting")
        and "\nonboot: 1" in f"\n{text(facts, 'config_text')}"
    ):
        return "starting"
    return state or "unknown"


def is_young(host: Mapping[str, Any], vmid: int) -> bool:
    """Whether the container runs so shortly that its sshd may still come up by itself."""
    if container_state(host, vmid) != "running":
        return False
    uptime = real(mapping(host, "containers", str(vmid)), "status", "uptime")
    if uptime is None:
        uptime = real(host, "uptime_s")
    return uptime is not None and uptime < YOUNG_S


def describe(
    host_call: Mapping[str, Any], node_call: Mapping[str, Any], vmid: int, via: str
) -> dict[str, Any]:
    """The `link` of a diagnosis: the four links, and what ssh said about those that are down."""
    host_state = text(host_call, "link") or "unknown"
    node_state = text(node_call, "link") or "not_asked"
    answered = host_state in ("up", "login_refused", "host_key", "sudo_refused", "python_missing", "failed")
    return {
        "host": "silent"
        if host_state in ("silent", "name_unknown")
        else "unknown"
        if host_state == "unknown"
        else "up",
        "sshd": "up" if answered else "down" if host_state in ("refused", "closed") else "unknown",
        "container": container_state(mapping(host_call, "evidence"), vmid),
        "node": node_state,
        "via": via,
        "host_state": host_state,
        "host_message": text(host_call, "message") or "",
        "host_address": text(host_call, "address") or "",
        "node_state": node_state,
        "node_message": text(node_call, "message") or "",
        "node_address": text(node_call, "address") or "",
    }
