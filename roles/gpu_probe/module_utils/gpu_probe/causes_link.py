"""Whether the host and the container are there at all, and may be touched. Asked before anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cause import CUDA_RESULTS, NEEDS_PERSON, Finding, cause
from .evidence import items, text, truth

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
    "host_key": ("host_key_unknown", "{host}'s ssh host key is not in known_hosts, or another one is"),
    "sudo_refused": ("host_sudo_refused", "{host} lets this user in, but not become root"),
    "python_missing": ("host_python_missing", "{host} has no Python at the configured path"),
    "failed": ("host_probe_failed", "{host} answers, but the probe failed there"),
}
_ADVICE = {
    "host_silent": "Look at its console (IPMI)",
    "host_sshd_down": "Wait, or look at its console",
    "host_name_unknown": "Set ansible_host in the inventory",
    "host_login_refused": "Check ansible_user and the key in its authorized_keys",
    "host_key_unknown": "Connect once by hand; if the key changed without a new installation, don't",
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
_add_host_cause("host_key_unknown", "the host's ssh key is not in known_hosts, or another one is")
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
