"""The container's state and its own link: told after what keeps it from starting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .cause import CUDA_RESULTS, NEEDS_PERSON, NOTE, REPAIRABLE, Finding, cause
from .evidence import items, real, text, truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case

GROUP = "container"
# LXC's and Proxmox's own words; systemd's about its unit say no more than that it failed.
_TELLING = re.compile(r"^(?!\S+\.service: ).*(error|fail|does not exist)", re.IGNORECASE)
EVERYTHING_INSIDE = CUDA_RESULTS | {"node_network_down", "node_sshd_down", "node_login_failed"}


@cause(
    "container_starting",
    group=GROUP,
    severity=REPAIRABLE,
    repair="start_container",
    about="the host is still going through its onboot containers",
    explains=EVERYTHING_INSIDE | {"container_stopped"},
)
def container_starting(case: Case) -> Iterator[Finding]:
    if text(case.link, "container") == "starting":
        yield Finding(
            f"Container {case.vmid} on {case.host_name} is still starting.",
            {"status": case.container_state, "guests_starting": truth(case.host, "guests_starting")},
        )


@cause(
    "container_stopped",
    group=GROUP,
    severity=REPAIRABLE,
    repair="start_container",
    about="the container does not run",
    explains=EVERYTHING_INSIDE,
)
def container_stopped(case: Case) -> Iterator[Finding]:
    state = case.container_state
    if state is None or state in ("running", ""):
        return
    log = [str(line) for line in items(case.container_facts, "start_log")]
    said = next((line for line in reversed(log) if _TELLING.search(line)), "")
    onboot = case.container.keys.get("onboot") == "1" if case.container is not None else None
    why = (
        f" (its last start said: {said.strip()})"
        if said
        else ""
        if onboot is not False
        else " (onboot is not set)"
    )
    yield Finding(
        f"Container {case.vmid} on {case.host_name} is {state}{why}.",
        {"status": state, "onboot": onboot, "start_log": log},
    )


@cause(
    "container_ha_managed",
    group=GROUP,
    severity=NOTE,
    about="the HA manager decides about this container's state: start and stop are only requests",
)
def container_ha_managed(case: Case) -> Iterator[Finding]:
    if truth(case.container_facts, "ha_managed") is True:
        yield Finding(
            f"Container {case.vmid} is HA-managed: a start or stop is a request to the HA manager, and it "
            f"may move "
            f"the container.",
            {"ha_managed": True},
        )


@cause(
    "node_network_down",
    group=GROUP,
    severity=REPAIRABLE,
    repair="restart_container",
    about="the container runs, but its network does not answer (it was looked at through its host)",
)
def node_network_down(case: Case) -> Iterator[Finding]:
    if case.container_state == "running" and text(case.link, "node_state") in ("silent", "name_unknown"):
        addresses = [str(one) for one in items(case.inside, "addresses")]
        has = f"it has {', '.join(addresses)}" if addresses else "it has no address"
        inside = f"; {has} inside" if case.inside else ""
        yield Finding(
            f"{case.node} runs on {case.host_name}, but does not answer at "
            f"{text(case.link, 'node_address') or case.node}{inside}.",
            {
                "message": text(case.link, "node_message"),
                "addresses": addresses,
                "sshd": truth(case.inside, "sshd"),
            },
        )


@cause(
    "node_sshd_down",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the container runs and answers, but its sshd does not (it was looked at through its host)",
)
def node_sshd_down(case: Case) -> Iterator[Finding]:
    if case.container_state == "running" and text(case.link, "node_state") in ("refused", "closed"):
        uptime = real(case.inside, "uptime_s")
        since = f", {uptime:.0f} s after its start" if uptime is not None else ""
        yield Finding(
            f"{case.node} is up, but its sshd refuses connections{since}. On {case.host_name}: "
            f"`pct exec {case.vmid} -- systemctl status ssh`.",
            {
                "message": text(case.link, "node_message"),
                "sshd": truth(case.inside, "sshd"),
                "uptime_s": uptime,
            },
        )


@cause(
    "node_login_failed",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the container runs, but its login fails (key, host key, sudo, Python, or the probe itself)",
)
def node_login_failed(case: Case) -> Iterator[Finding]:
    state = text(case.link, "node_state")
    reasons = {
        "login_refused": "refuses this user's ssh key: check ansible_user and its authorized_keys",
        "host_key": (
            "has an ssh host key that is not in known_hosts, or another one is: connect once by hand, and "
            "forget the old one if it was rebuilt"
        ),
        "sudo_refused": "lets this user in, but not become root",
        "python_missing": "has no Python at the configured path: install python3",
        "failed": "answers, but the probe failed there",
    }
    if case.container_state == "running" and state in reasons:
        yield Finding(
            f"{case.node} {reasons[state]}.", {"state": state, "message": text(case.link, "node_message")}
        )
