"""What an operator is told while a machine does not answer: each link that can be down, on real sockets."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Require the machine to answer as root
      link_wait:
        limit_s: 0.5
"""
OPTIONAL = PLAY.replace("0.5", "0\n        optional: true")


def told(tmp_path, variables, text=PLAY):
    """Run the wait against one machine; return the exit status and everything printed."""
    play = tmp_path / "play.yml"
    play.write_text(text)
    pairs = " ".join(f"{key}={value}" for key, value in variables.items())
    (tmp_path / "hosts.ini").write_text(f"kpro6 {pairs}\n")
    run = subprocess.run(
        [ANSIBLE, "-i", tmp_path / "hosts.ini", play],
        cwd=PROJECT,
        env={
            "PATH": f"{ANSIBLE.parent}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "200",
            "ANSIBLE_BECOME_ALLOW_SAME_USER": "true",
            "ANSIBLE_ACTION_PLUGINS": str(PROJECT / "playbooks/action_plugins"),
            "ANSIBLE_CALLBACK_PLUGINS": str(PROJECT / "playbooks/callback_plugins"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return run.returncode, " ".join((run.stdout + run.stderr).split())


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_machine_that_answers_as_root_is_not_waited_for(tmp_path):
    status, said = told(tmp_path, {"ansible_connection": "local"})

    assert status == 0, said
    assert "kpro6 answers as root" in said


def test_a_closed_port_means_the_machine_is_up_without_sshd(tmp_path, listener):
    port = listener.getsockname()[1]
    listener.close()
    status, said = told(tmp_path, {"ansible_host": "127.0.0.1", "ansible_port": port})

    assert status == 2
    assert f"nothing listens on port {port}: sshd has not started" in said
    assert "kpro6 (127.0.0.1) is not usable within 0.5 s (wait_limit_s)" in said


def test_an_address_that_swallows_packets_means_silence(tmp_path, listener):
    # A full backlog drops the next SYN, which is what a machine that is off looks like.
    listener.listen(0)
    address = listener.getsockname()
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)  # noqa: FBT003 (the signature of sockets)
        filler.connect_ex(address)
        fillers.append(filler)
    variables = {"ansible_host": "127.0.0.1", "ansible_port": address[1], "ansible_timeout": 1}
    status, said = told(tmp_path, variables)
    for filler in fillers:
        filler.close()

    assert status == 2
    assert "nothing answers at 127.0.0.1: switched off, still booting, or no network" in said


def test_a_name_without_address_points_at_the_inventory(tmp_path):
    status, said = told(tmp_path, {"ansible_host": "no-such-machine.invalid"})

    assert status == 2
    assert "the name no-such-machine.invalid has no address: check ansible_host in the inventory" in said


def test_a_login_that_is_not_root_is_refused_at_once(tmp_path):
    # `become` is the way in and out of root: to nobody, the machine answers, but not as root.
    variables = {
        "ansible_connection": "local",
        "ansible_become": "true",
        "ansible_become_user": "nobody",
        "ansible_become_method": "ansible.builtin.su",
        "ansible_become_flags": "'-s /bin/sh'",
    }
    status, said = told(tmp_path, variables)

    assert status == 2
    assert "the login works but is not root, and root is needed: set ansible_become: true for it" in said
    assert "is not usable:" in said


def test_sudo_that_wants_a_password_is_told_apart(tmp_path):
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    sudo.chmod(0o755)
    variables = {"ansible_connection": "local", "ansible_become": "true", "ansible_become_exe": sudo}
    status, said = told(tmp_path, variables)

    assert status == 2
    assert "the login works but sudo refuses: allow it, or give the password with --ask-become-pass" in said


@pytest.mark.parametrize(
    ("ssh_says", "advice"),
    [
        ("Host key verification failed.", "its host key is not in known_hosts yet: connect once by hand"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "its host key is another than the one in known_hosts: if it was installed anew",
        ),
    ],
    ids=["never seen", "changed"],
)
def test_a_host_key_never_seen_is_told_from_one_that_changed(tmp_path, listener, ssh_says, advice):
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho '{ssh_says}' >&2\nexit 255\n")
    ssh.chmod(0o755)
    variables = {
        "ansible_host": "127.0.0.1",
        "ansible_port": listener.getsockname()[1],
        "ansible_ssh_executable": ssh,
    }
    status, said = told(tmp_path, variables)

    assert status == 2
    assert advice in said


def test_an_optional_machine_that_is_silent_is_a_line_and_no_failure(tmp_path, listener):
    port = listener.getsockname()[1]
    listener.close()
    status, said = told(tmp_path, {"ansible_host": "127.0.0.1", "ansible_port": port}, OPTIONAL)

    assert status == 0, said
    assert f"kpro6 left out here: the machine is up but nothing listens on port {port}" in said


def test_an_optional_machine_that_refuses_is_a_failure(tmp_path):
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    sudo.chmod(0o755)
    variables = {"ansible_connection": "local", "ansible_become": "true", "ansible_become_exe": sudo}
    status, said = told(tmp_path, variables, OPTIONAL)

    assert status == 2
    assert "is not usable: the login works but sudo refuses" in said
