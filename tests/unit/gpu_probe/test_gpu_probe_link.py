"""What ssh, sudo and Ansible say about a link, in one word."""

import pytest
from ansible.module_utils.gpu_probe.link import classify, container_state, describe, is_young

SAID = {
    "ssh: connect to host 10.0.0.6 port 22: Connection timed out": "silent",
    "ssh: connect to host 10.0.0.6 port 22: No route to host": "silent",
    "ssh: connect to host 10.0.0.6 port 22: Network is unreachable": "silent",
    "ssh: connect to host 10.0.0.6 port 22: Connection refused": "refused",
    "kex_exchange_identification: Connection closed by remote host": "closed",
    "Connection timed out during banner exchange": "closed",
    'Connection closed by 10.0.0.6 port 22\r\n"System is booting up. Unprivileged users are': "closed",
    "mux_client_request_session: read from master failed: Broken pipe": "closed",
    "root@10.0.0.6: Permission denied (publickey).": "login_refused",
    "Received disconnect from 10.0.0.6 port 22:2: Too many authentication failures": "login_refused",
    "Host key verification failed.": "host_key",
    "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @": "host_key",
    "ssh: Could not resolve hostname kpro6: Name or service not known": "name_unknown",
    "Missing sudo password": "sudo_refused",
    "sudo: a password is required": "sudo_refused",
    "admin is not in the sudoers file.": "sudo_refused",
    "The module interpreter '/usr/bin/python3' was not found.": "python_missing",
    "/bin/sh: 1: /usr/bin/python3: not found": "python_missing",
    "something else entirely": "failed",
}


@pytest.mark.parametrize(("said", "state"), SAID.items())
def test_each_message_has_its_word(said, state):
    assert classify(said) == state


def host(state="running", *, starting=False, onboot=True, uptime=None, host_uptime=9000.0):
    text = "arch: amd64\n" + ("onboot: 1\n" if onboot else "")
    status = {"state": state} | ({} if uptime is None else {"uptime": uptime})
    return {
        "guests_starting": starting,
        "uptime_s": host_uptime,
        "containers": {"200": {"config_exists": True, "config_text": text, "status": status}},
    }


def test_a_stopped_container_is_starting_while_the_host_starts_its_guests():
    assert container_state(host("stopped", starting=True), 200) == "starting"
    assert container_state(host("stopped", starting=True, onboot=False), 200) == "stopped"
    assert container_state(host("stopped"), 200) == "stopped"
    assert container_state({}, 200) == "unknown"


def test_only_a_container_that_runs_since_shortly_is_worth_waiting_for():
    assert is_young(host(uptime=5), 200)
    assert not is_young(host(uptime=500), 200)
    assert is_young(host(host_uptime=20.0), 200)
    assert not is_young(host("stopped", uptime=5), 200)


@pytest.mark.parametrize(
    ("host_state", "expected"),
    [
        ("up", ("up", "up")),
        ("silent", ("silent", "unknown")),
        ("refused", ("up", "down")),
        ("closed", ("up", "down")),
        ("login_refused", ("up", "up")),
    ],
)
def test_the_four_links_are_told_apart(host_state, expected):
    link = describe({"link": host_state, "message": "m", "address": "a"}, {}, 200, "none")

    assert (link["host"], link["sshd"]) == expected
    assert link["node"] == "not_asked"
