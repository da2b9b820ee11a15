"""What the operator reads of a run, from real runs of small plays."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

PROJECT = Path(__file__).parents[3]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
SCHEMA = json.loads((PROJECT / "collector/schemas/recovery.schema.json").read_text())
# A module of this test's own: it says what it is told to, as the roles' modules do.
SAY = """
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"result": {"type": "dict"}}, supports_check_mode=True)
module.exit_json(**module.params["result"])
"""
PLAY = """
- name: {stage} | Do something
  hosts: all
  gather_facts: false
  tasks:
"""


def task(text, **result):
    return f"    - name: {text}\n      say: {{result: {json.dumps(result)}}}\n"


@pytest.fixture
def start(tmp_path):
    """Start a playbook of the given text; what it prints and its record are in the folder."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/say.py").write_text(SAY)
    started = []

    def run(text, *options):
        (tmp_path / "play.yml").write_text(text)
        # A pipe would stay open for as long as a task's own process outlives an interrupted run.
        with (tmp_path / "printed").open("wb") as output:
            process = subprocess.Popen(
                [ANSIBLE, "-i", "ct200,", "-c", "local", tmp_path / "play.yml", *options],
                cwd=PROJECT,
                env={
                    "PATH": f"{ANSIBLE.parent}:/usr/bin:/bin",
                    "HOME": str(tmp_path),
                    "LC_ALL": "C.UTF-8",
                    "RECOVERY_REPORT": str(tmp_path / "recovery.json"),
                    "ANSIBLE_LIBRARY": str(tmp_path / "library"),
                },
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def printed(tmp_path):
    """The exit status and everything printed, once the run has ended."""

    def read(process):
        status = process.wait(timeout=60)
        return status, (tmp_path / "printed").read_text()

    return read


def test_paths_are_short_on_the_screen_and_whole_in_the_record(start, printed, tmp_path):
    path = f"{PROJECT}/results/report.html"
    text = PLAY.format(stage="Collect") + task("Report", summary=f"report {path}", recovery={"changes": []})

    status, said = printed(start(text))

    assert status == 0, said
    assert "  ct200    report results/report.html\n" in said
    assert "tables    report results/report.html\n" in said
    assert json.loads((tmp_path / "recovery.json").read_text())["lines"][0]["text"] == f"report {path}"


def test_a_long_progress_line_is_wrapped_below_its_node(start, printed):
    text = PLAY.format(stage="Repair") + task("Fix", progress="fix_config: " + "allow major 203; " * 12)

    _, said = printed(start(text))

    assert "Repair · Do something  [after 0 s]\n" in said
    shown = said[said.index("fix_config") : said.index("Summary")].strip().splitlines()
    assert len(shown) > 1
    assert all(line.startswith(" " * 11) and len(line) <= 118 for line in shown[1:])


@pytest.mark.parametrize(("options", "word"), [((), "changed"), (("--check",), "would change")])
def test_check_mode_does_not_claim_a_change(start, printed, options, word):
    text = PLAY.format(stage="Repair") + task("Allow it now", changed=True)

    _, said = printed(start(text, *options))

    assert f"  ct200    {word}: Allow it now\n" in said


def test_an_interrupted_run_says_what_goes_on_and_how_to_come_back(start, printed, tmp_path):
    wait = "    - name: Wait\n      ansible.builtin.command: sleep 15\n"
    text = PLAY.format(stage="Bench") + task("Note", summary="begun", recovery={"changes": []}) + wait

    process = start(text)
    while "begun" not in (tmp_path / "printed").read_text():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    status, said = printed(process)

    assert status != 0
    assert (
        "Cut short in Bench. What was begun on a node (a copy, a campaign) goes on there; "
        "run the same command again to follow it."
    ) in " ".join(said.split())
    record = json.loads((tmp_path / "recovery.json").read_text())
    jsonschema.validate(record, SCHEMA)
    assert record["outcome"] == "cut_short"
