"""Which link is down: host, sshd, container, or only its network. Asked before anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cause import CUDA_RESULTS, NEEDS_PERSON, NOTE, REPAIRABLE, Finding, cause
from .evidence import items, real, text, truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case

GROUP = "link"
_HOST = {
    "silent": (
        "host_silent",
        "{host} does not answer at {address}: it is off, still booting, or its network is down",
    ),
    "refused": (
        "host_sshd_down",
        "{host} is up ({address} answers) but refuses ssh: sshd is not up yet, or has died",
    ),
    "closed": (
        "host_sshd_down",
        "{host} is up but closes the ssh connection: it is still booting, or sshd is broken",
    ),
    "name_unknown": ("host_name_unknown", "{host} has no address: {address} can't be resolved"),
    "login_refused": ("host_login_refused", "{host} refuses this user's ssh key"),
    "host_key": ("host_key_unknown", "{host}'s ssh host key is not the known one"),
    "sudo_refused": ("host_sudo_refused", "{host} lets this user in, but not become root"),
    "python_missing": ("host_python_missing", "{host} has no Python at the configured path"),
    "failed": ("host_probe_failed", "{host} answers, but the probe failed there"),
}
_ADVICE = {
    "host_silent": "Look at its console (IPMI)",
    "host_sshd_down": "Wait, or look at its console",
    "host_name_unknown": "Set ansible_host in the inventory",
    "host_login_refused": "Check ansible_user and the key in its authorized_keys",
    "host_key_unknown": "If it was reinstalled, replace the key in known_hosts; if not, don't connect",
    "host_sudo_refused": "Connect as root, or give the user sudo rights (ansible_become_password)",
    "host_python_missing": "Set ansible_python_interpreter in the inventory",
    "host_probe_failed": "Read the message in the proof",
}
EVERYTHING_INSIDE = CUDA_RESULTS | {"node_network_down", "node_sshd_down", "node_login_failed"}


def _host_link(case: Case, wanted: str) -> Iterator[Finding]:
    state = text(case.link, "host_state") or "up"
    name, sentence = _HOST.get(state, ("", ""))
    if name == wanted:
        said = text(case.link, "host_message") or ""
        address = text(case.link, "host_address") or case.host_name
        yield Finding(
            f"{sentence.format(host=case.host_name, address=address)}. {_ADVICE[name]}.",
            {"state": state, "message": said, "address": address},
        )


def _add_host_cause(name: str, about: str) -> None:
    def find(case: Case) -> Iterator[Finding]:
        return _host_link(case, name)

    cause(name, group=GROUP, severity=NEEDS_PERSON, about=about, explains=EVERYTHING_INSIDE)(find)


_add_host_cause("host_silent", "nothing answers at the host's address")
_add_host_cause("host_sshd_down", "the host answers, its sshd does not (yet)")
_add_host_cause("host_name_unknown", "the host's name can't be resolved")
_add_host_cause("host_key_unknown", "the host's ssh key is not the known one")
_add_host_cause("host_login_refused", "the host refuses the ssh key or user")
_add_host_cause("host_sudo_refused", "the login works, becoming root does not")
_add_host_cause("host_python_missing", "no Python interpreter on the host")
_add_host_cause("host_probe_failed", "the probe itself failed on the host")


@cause(
    "host_is_no_pve",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="`pct` is not installed on the host",
    explains=EVERYTHING_INSIDE | {"container_unknown"},
)
def host_is_no_pve(case: Case) -> Iterator[Finding]:
    said = text(case.container_facts, "status", "error") or ""
    if said == "not installed":
        yield Finding(
            f"{case.host_name} has no `pct`: it is not a Proxmox VE host. Check pve_host of {case.node} in "
            f"the inventory.",
            {"pct": said},
        )


@cause(
    "container_unknown",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the host has no container with this id (perhaps another cluster member has it)",
    explains=EVERYTHING_INSIDE,
)
def container_unknown(case: Case) -> Iterator[Finding]:
    if truth(case.container_facts, "config_exists") is not False:
        return
    elsewhere = [str(one) for one in items(case.container_facts, "elsewhere")]
    path = text(case.container_facts, "config_path")
    where = f"; it is on {', '.join(elsewhere)} now" if elsewhere else ""
    yield Finding(
        f"{case.host_name} has no container {case.vmid} ({path} does not exist){where}. "
        f"Correct vmid or pve_host of {case.node}.",
        {"config_path": path, "elsewhere": elsewhere},
    )


@cause(
    "container_template",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the container is a template and can't be started",
    explains=EVERYTHING_INSIDE | {"container_stopped"},
)
def container_template(case: Case) -> Iterator[Finding]:
    if case.container is not None and case.container.keys.get("template") == "1":
        yield Finding(
            f"Container {case.vmid} on {case.host_name} is a template and can't be started. "
            f"Clone it and set vmid of {case.node} to the clone.",
            {"template": "1"},
        )


@cause(
    "container_locked",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="a `lock:` (backup, snapshot, migrate …) is on the container: nothing may be changed",
    explains=EVERYTHING_INSIDE | {"container_stopped"},
)
def container_locked(case: Case) -> Iterator[Finding]:
    in_file = case.container.keys.get("lock") if case.container is not None else None
    lock = in_file or text(case.container_facts, "status", "lock")
    if lock:
        yield Finding(
            f"Container {case.vmid} on {case.host_name} is locked ({lock}). Wait for that task to end; if "
            f"it has "
            f"died, `pct unlock {case.vmid}`.",
            {"lock": lock},
        )


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
    said = next((line for line in reversed(log) if "rror" in line or "ailed" in line), "")
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
        "host_key": "has another ssh host key than the known one: if it was rebuilt, replace it",
        "sudo_refused": "lets this user in, but not become root",
        "python_missing": "has no Python at the configured path: install python3",
        "failed": "answers, but the probe failed there",
    }
    if case.container_state == "running" and state in reasons:
        yield Finding(
            f"{case.node} {reasons[state]}.", {"state": state, "message": text(case.link, "node_message")}
        )
