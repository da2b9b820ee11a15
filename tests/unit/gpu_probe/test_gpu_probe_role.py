"""The role in a real play: on a scratch machine by a local connection, and by ssh to a closed port."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

PROJECT = Path(__file__).parents[3]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
SCHEMA = json.loads((PROJECT / "collector/schemas/diagnosis.schema.json").read_text())
PLAY = """
- hosts: ct200
  gather_facts: false
  roles: [gpu_probe]
"""
PCT = "#!/bin/sh\ncase $1 in status) echo 'status: {state}' ;; exec) shift 3; exec \"$@\" ;; esac\n"


@pytest.fixture
def fleet(tmp_path):
    """Runs the role on ct200 of kpro6; both are this machine, with files of their own."""
    conf = tmp_path / "pve/lxc"
    conf.mkdir(parents=True)
    (conf / "200.conf").write_text("arch: amd64\nonboot: 1\nlxc.cgroup2.devices.allow: c 195:* rwm\n")
    (tmp_path / "devices").write_text("Character devices:\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n")
    (tmp_path / "play.yml").write_text(PLAY)
    pct = tmp_path / "pct"
    pct.write_text(PCT.format(state="running"))
    pct.chmod(0o755)
    return Fleet(tmp_path)


class Fleet:
    def __init__(self, folder):
        self.folder = folder
        self.host = "ansible_connection=local"
        self.node = "ansible_connection=local"
        self.callback = "default"

    def state(self, state):
        (self.folder / "pct").write_text(PCT.format(state=state))

    def run(self, *arguments, **variables):
        """Exit status, output, and the diagnosis that was saved."""
        (self.folder / "hosts.ini").write_text(
            f"kpro6 {self.host}\nct200 {self.node}\n[all:vars]\nansible_python_interpreter={sys.executable}\n"
        )
        asked = {
            "gpu_probe_host": "kpro6",
            "gpu_probe_vmid": 200,
            "gpu_probe_conf_dir": str(self.folder / "pve/lxc"),
            "gpu_probe_proc_devices": str(self.folder / "devices"),
            "gpu_probe_pct": str(self.folder / "pct"),
            "gpu_probe_dev_dir": str(self.folder),
            "gpu_probe_pci_devices": str(self.folder / "no-pci"),
            "gpu_probe_save_to": str(self.folder / "saved"),
            "gpu_probe_limit_s": 5,
        } | variables
        done = subprocess.run(
            [
                ANSIBLE,
                "-i",
                self.folder / "hosts.ini",
                self.folder / "play.yml",
                "-e",
                json.dumps(asked),
                *arguments,
            ],
            cwd=PROJECT,
            env={
                "PATH": f"{ANSIBLE.parent}:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": str(self.folder),
                "LC_ALL": "C.UTF-8",
                "COLUMNS": "200",
                "ANSIBLE_STDOUT_CALLBACK": self.callback,
                "RECOVERY_REPORT": str(self.folder / "recovery.json"),
                "ANSIBLE_ROLES_PATH": str(PROJECT / "roles"),
                "ANSIBLE_TIMEOUT": "2",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        saved = self.folder / "saved/ct200.json"
        diagnosis = json.loads(saved.read_text()) if saved.exists() else None
        return done.returncode, " ".join((done.stdout + done.stderr).split()), diagnosis


@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens: refused, and nobody else gets it
        yield taken.getsockname()[1]


def names(diagnosis):
    return [cause["name"] for cause in diagnosis["causes"]]


@pytest.mark.parametrize("mode", [(), ("--check",)], ids=["plain", "check mode"])
def test_a_play_leads_to_a_diagnosis_and_changes_nothing(fleet, mode):
    status, said, diagnosis = fleet.run(*mode)

    assert status == 0, said
    assert "changed=0" in said
    assert "[WARNING]" not in said
    jsonschema.validate(diagnosis, SCHEMA)
    assert diagnosis["link"]["via"] == "ssh"
    assert diagnosis["host_evidence"]["proc_devices"] == [[195, "nvidia"], [511, "nvidia-uvm"]]
    assert "host_node_missing" in names(diagnosis)


def test_a_stopped_container_is_not_asked(fleet):
    fleet.state("stopped")
    status, said, diagnosis = fleet.run()

    assert status == 0, said
    assert diagnosis["link"]["container"] == "stopped"
    assert diagnosis["link"]["node"] == "not_asked"
    assert "container_stopped" in names(diagnosis)


def test_a_host_without_sshd_is_named(fleet, closed_port):
    fleet.host = f"ansible_host=127.0.0.1 ansible_port={closed_port}"
    status, said, diagnosis = fleet.run()

    assert status == 0, said
    assert diagnosis["link"]["sshd"] == "down"
    assert names(diagnosis)[0] == "host_sshd_down"
    jsonschema.validate(diagnosis, SCHEMA)


def test_waiting_ends_at_its_limit_and_says_for_what(fleet, closed_port):
    fleet.host = f"ansible_host=127.0.0.1 ansible_port={closed_port}"
    fleet.callback = "recovery"
    status, said, diagnosis = fleet.run("-v", gpu_probe_wait_s=2)

    assert status == 0, said
    assert "127.0.0.1 answers, but its sshd is not up (0 s of at most 2 s)" in said
    record = json.loads((fleet.folder / "recovery.json").read_text())
    assert record["nodes"]["ct200"]["verdict"] == "needs_person"
    assert names(diagnosis)[0] == "host_sshd_down"


def test_a_node_without_sshd_is_looked_into_through_its_host(fleet, closed_port):
    fleet.node = f"ansible_host=127.0.0.1 ansible_port={closed_port}"
    status, said, diagnosis = fleet.run()

    assert status == 0, said
    assert diagnosis["link"]["via"] == "pct exec"
    assert diagnosis["node_evidence"]["device_nodes"]
    assert "node_sshd_down" in names(diagnosis)


def test_words_from_a_command_line_reach_the_node_through_its_host_as_what_they_mean(fleet, closed_port):
    fleet.node = f"ansible_host=127.0.0.1 ansible_port={closed_port}"
    words = {"gpu_probe_limit_s": "5", "gpu_probe_allocate": "false", "gpu_probe_expected_gpus": "3"}
    status, said, diagnosis = fleet.run(gpu_probe_vmid="200", gpu_probe_wait_s="0", **words)

    assert status == 0, said
    assert diagnosis["link"]["via"] == "pct exec"
    assert "/dev/nvidia2" in {node["path"] for node in diagnosis["node_evidence"]["device_nodes"]}


def test_an_unknown_host_is_refused(fleet):
    status, said, diagnosis = fleet.run(gpu_probe_host="kpro66")

    assert status == 2
    assert "its host kpro66 (gpu_probe_host) is not in the inventory" in said
    assert diagnosis is None


def test_what_changed_since_a_snapshot_is_named(fleet):
    fleet.run(gpu_probe_save_to=str(fleet.folder / "before"))
    (fleet.folder / "devices").write_text(
        "Character devices:\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n"
    )

    status, said, diagnosis = fleet.run("-v", gpu_probe_before=str(fleet.folder / "before/ct200.json"))

    assert status == 0, said
    assert "the major of nvidia-uvm was 511 and is 510" in said
    (majors,) = (change for change in diagnosis["changes"] if change["what"] == "majors")
    assert majors["after"] == {"nvidia": 195, "nvidia-uvm": 510}


def test_a_file_that_is_no_diagnosis_is_refused(fleet):
    snapshot = fleet.folder / "snapshot.json"
    snapshot.write_text("{}")

    status, said, _diagnosis = fleet.run(gpu_probe_before=str(snapshot))

    assert status == 2
    assert f"{snapshot} on the controller is not a diagnosis" in said


def test_a_folder_that_is_not_writable_is_named(fleet):
    (fleet.folder / "file").write_text("")

    status, said, _diagnosis = fleet.run(gpu_probe_save_to=str(fleet.folder / "file/saved"))

    assert status == 2
    assert "gpu_probe_save_to" in said
