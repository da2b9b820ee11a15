"""Ansible skips a group_vars folder that stands in the wrong place without a word: each way in is tried."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
SHOW = """
- name: Show | what arrives
  hosts: nodes
  gather_facts: false
  connection: local
  tasks:
    - name: Show it
      ansible.builtin.copy:
        content: '{{ {"all": wait_limit_s, "group": plan.name, "results": results_dir} | to_json }}'
        dest: "{{ shown }}"
        mode: "0600"
"""
# The operator's command: a playbook in the root that imports one of playbooks/.
IMPORT = """
- name: Import it
  ansible.builtin.import_playbook: playbooks/.group-vars-test.yml
"""


@pytest.fixture(params=["root", "playbooks"])
def playbook(request):
    """A playbook that is called like the project's own, in one of the two ways; gone afterwards."""
    inner, outer = PROJECT / "playbooks/.group-vars-test.yml", PROJECT / ".group-vars-test.yml"
    inner.write_text(SHOW)
    outer.write_text(IMPORT)
    yield outer if request.param == "root" else inner
    inner.unlink()
    outer.unlink()


@pytest.mark.parametrize("inventory", ["lab", "fleet"])
def test_values_arrive_from_all_and_from_the_groups_own_folder(playbook, inventory, tmp_path):
    plan = yaml.safe_load((PROJECT / f"group_vars/{inventory}/plans.yml").read_text())["plan_name"]
    shown = tmp_path / "shown.json"
    run = subprocess.run(
        [ANSIBLE, "-i", f"inventory/{inventory}", playbook.relative_to(PROJECT), "-e", f"shown={shown}"],
        cwd=PROJECT,
        env={"PATH": f"{ANSIBLE.parent}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads(shown.read_text()) == {"all": 300, "group": plan, "results": str(PROJECT / "results")}
