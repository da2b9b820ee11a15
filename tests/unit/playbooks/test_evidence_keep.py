"""The evidence of healthy nodes is kept for the diagnosis after the next reboot, and compared with by it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[3]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
KEEP = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Keep the evidence
      evidence_keep:
        diagnosis: "{{ gpu_probe_diagnosis }}"
        folder: "{{ folder }}"
"""
# The variables of the play in recover.yml, shown.
SHOW = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Show what the probe compares with
      ansible.builtin.copy:
        content: "{{ gpu_probe_before }}"
        dest: "{{ results_dir }}/shown"
        mode: "0600"
"""


@pytest.fixture
def play(tmp_path):
    def run(text, *words, **variables):
        (tmp_path / "play.yml").write_text(text)
        hosts = {"all": {"hosts": {"ct200": {"ansible_connection": "local", **variables}}}}
        (tmp_path / "hosts.json").write_text(json.dumps(hosts))
        done = subprocess.run(
            [ANSIBLE, "-i", tmp_path / "hosts.json", tmp_path / "play.yml", *words],
            cwd=PROJECT,
            env={
                "PATH": f"{ANSIBLE.parent}:/usr/bin:/bin",
                "HOME": str(tmp_path),
                "LC_ALL": "C.UTF-8",
                "RECOVERY_REPORT": "",
                "ANSIBLE_ACTION_PLUGINS": str(PROJECT / "playbooks/action_plugins"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def diagnosis(verdict):
    return {"node": "ct200", "verdict": verdict, "causes": [], "host_evidence": {"majors": [[195, "nvidia"]]}}


@pytest.mark.parametrize(
    ("verdict", "words", "is_kept"),
    [("healthy", (), True), ("repairable", (), False), ("healthy", ("--check",), False)],
)
def test_only_a_healthy_node_replaces_its_evidence(play, tmp_path, verdict, words, is_kept):
    folder = tmp_path / "evidence"
    status, said = play(KEEP, *words, gpu_probe_diagnosis=diagnosis(verdict), folder=str(folder))

    assert status == 0, said
    kept = folder / "ct200.json"
    assert kept.exists() is is_kept
    assert not is_kept or json.loads(kept.read_text()) == diagnosis("healthy")


def test_the_sizes_of_its_models_stand_beside_it(play, tmp_path):
    keep = KEEP.replace('diagnosis: "{{ gpu_probe_diagnosis }}"', "models: {big: 7}")
    status, said = play(keep, folder=str(tmp_path / "evidence"))

    assert status == 0, said
    assert json.loads((tmp_path / "evidence/ct200.models.json").read_text()) == {"big": 7}


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("name", ["recover.yml", "diagnose.yml"])
def test_the_probe_compares_with_the_evidence_that_is_there(play, tmp_path, name, is_there):
    plays = yaml.safe_load((PROJECT / "playbooks" / name).read_text())
    probe = next(one for one in plays if {"role": "gpu_probe"} in one.get("roles", []))
    shown = yaml.safe_load(SHOW)
    wanted = {key: probe["vars"][key] for key in ("evidence_file", "gpu_probe_before")}
    shown[0]["vars"] = wanted
    file = tmp_path / "evidence/ct200.json"
    if is_there:
        file.parent.mkdir()
        file.touch()
    status, said = play(yaml.safe_dump(shown), results_dir=str(tmp_path))

    assert status == 0, said
    assert (tmp_path / "shown").read_text() == (str(file) if is_there else "")
