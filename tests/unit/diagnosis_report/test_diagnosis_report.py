"""What diagnose.yml shows and writes: the table, diagnosis.json, and the failure that comes after both."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import referencing
from diagnosis_report.document import NO_DIAGNOSIS, document, one_line, sort_out
from diagnosis_report.table import WIDTH, remarks, table_lines

PROJECT = Path(__file__).parents[3]
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
SENTENCE = (
    "nvidia-uvm has major 511 now; ct200's rules allow 195, 509, 226, 234: opening /dev/nvidia-uvm is "
    "refused (EPERM), so cuInit(0) is 999."
)


def cause(
    name="uvm_major_not_allowed", severity="repairable", sentence=SENTENCE, repair="fix_config", **proof
):
    return {"name": name, "severity": severity, "sentence": sentence, "proof": proof, "repair": repair}


def diagnosis(node="ct200", verdict="repairable", causes=None, **more):
    return {
        "schema": "recover-and-bench/diagnosis",
        "schema_version": 1,
        "node": node,
        "host": "kpro6",
        "vmid": 200,
        "probed_at": "2026-11-30T12:00:00Z",
        "verdict": verdict,
        "link": {"host": "up", "sshd": "up", "container": "running", "node": "up", "via": "ssh"},
        "causes": [cause(major_now=511)] if causes is None else causes,
        "unseen": [],
        "host_evidence": {},
        "node_evidence": {},
        **more,
    }


def healthy(node="ct201"):
    ok = cause("ok", "note", f"{node}: cuInit(0) is 0, 8 GPUs.", None, cu_init=0)
    return diagnosis(node, "healthy", [ok])


def lines(*diagnoses, missing=(), **options):
    def proof_words(proof):
        return ", ".join(f"{key}={value}" for key, value in proof.items())

    return table_lines(diagnoses, missing, proof_words=proof_words, **options)


def test_a_row_has_node_verdict_cause_proof_and_repair():
    found = lines(diagnosis(causes=[cause(sentence="The rule is missing.", major_now=511)]))

    assert found[0].split() == ["node", "verdict", "cause", "proof", "repair"]
    columns = [found[0].index(word) for word in found[0].split()]
    cells = [found[2][start:end].strip() for start, end in zip(columns, [*columns[1:], None], strict=True)]
    assert cells == [
        "ct200",
        "repairable",
        "uvm_major_not_allowed: The rule is missing.",
        "major_now=511",
        "fix config",
    ]


@pytest.mark.parametrize("width", [80, WIDTH])
def test_nothing_is_wider_than_the_terminal(width):
    long_word = "/usr/lib/x86_64-linux-gnu/" + "x" * 200
    found = lines(
        diagnosis("a-node-with-a-very-long-name", causes=[cause(path=long_word)] * 2),
        healthy(),
        missing=[{"node": "ct209", "why": NO_DIAGNOSIS}],
        width=width,
    )

    assert max(len(line) for line in found) <= width


def test_several_causes_share_the_nodes_name():
    found = lines(diagnosis(causes=[cause(sentence="One."), cause(sentence="Two.")]))

    assert [line for line in found if line.startswith("ct200")] == [found[2]]
    assert "Two." in found[3]


def test_the_whole_sentence_is_there_and_its_paths_are_not_broken():
    found = lines(diagnosis(causes=[cause(proof="x" * 100)]))
    words = " ".join(" ".join(found).split())

    assert "/dev/nvidia-uvm" in words
    for word in SENTENCE.split():
        assert word in words


@pytest.mark.parametrize(
    ("severity", "repair", "said"),
    [
        ("repairable", "restart_container", "restart container"),
        ("needs_person", None, "by a person"),
        ("note", None, "none"),
    ],
)
def test_the_repair_says_who_does_it(severity, repair, said):
    found = lines(diagnosis(causes=[cause(severity=severity, repair=repair)]))

    assert found[2].endswith(f"  {said}")


def test_a_node_without_a_diagnosis_has_a_row():
    diagnoses, missing = sort_out(["ct200", "ct201"], {"ct200": diagnosis(), "ct201": None})
    found = lines(*diagnoses, missing=missing)

    assert any(line.startswith("ct201  unknown") for line in found)


def test_changes_and_blind_spots_stand_below():
    changed = diagnosis(
        changes=[{"what": "kernel", "before": "1", "after": "2"}],
        unseen=[{"what": f"host: {number}", "why": "EACCES"} for number in range(5)],
    )

    assert remarks(
        [changed], change_sentences=lambda changes: [f"{one['what']} differs" for one in changes]
    ) == [
        "ct200: changed since the snapshot: kernel differs",
        "ct200: not seen: host: 0 (EACCES); host: 1 (EACCES); host: 2 (EACCES) and 2 more",
    ]


def test_the_document_keeps_its_schema():
    diagnoses, missing = sort_out(["ct200", "ct201", "ct202"], {"ct200": diagnosis(), "ct201": healthy()})
    whole = document(diagnoses, missing, made_at="2026-11-30T12:00:00Z")
    schemas = [
        json.loads((PROJECT / f"collector/schemas/{name}.schema.json").read_text())
        for name in ("diagnoses", "diagnosis")
    ]
    registry = referencing.Registry().with_resources(
        (schema["$id"], referencing.Resource.from_contents(schema)) for schema in schemas
    )

    jsonschema.Draft202012Validator(schemas[0], registry=registry).validate(whole)
    assert whole["verdict"] == "unknown"
    assert [one["node"] for one in whole["nodes"]] == ["ct200", "ct201"]


@pytest.mark.parametrize(
    ("diagnoses", "missing", "said"),
    [
        ([healthy()], [], "1 of 1 node healthy"),
        (
            [diagnosis(), healthy(), diagnosis("ct202", "needs_person")],
            [{"node": "ct203", "why": ""}],
            "1 of 4 nodes healthy; repairable: ct200; needs a person: ct202; no diagnosis: ct203",
        ),
    ],
)
def test_one_line_says_how_the_fleet_is(diagnoses, missing, said):
    assert one_line(diagnoses, missing) == said


PLAY = """
- hosts: nodes
  gather_facts: false
  tasks:
    - name: Report
      diagnosis_report:
        nodes: "{{ ansible_play_hosts_all }}"
        to: "{{ to }}"
        strict: "{{ strict | bool }}"
      run_once: true
"""


@pytest.fixture
def report(tmp_path):
    """Run the plugin in a play whose hosts have these facts; returns status, words, and diagnosis.json."""

    def run(facts, *, strict=False, to=None):
        path = to or tmp_path / "results/diagnosis.json"
        hosts = {
            node: {"ansible_connection": "local", **({"gpu_probe_diagnosis": fact} if fact else {})}
            for node, fact in facts.items()
        }
        inventory = {"all": {"children": {"nodes": {"hosts": hosts}}}}
        (tmp_path / "hosts.json").write_text(json.dumps(inventory))
        (tmp_path / "play.yml").write_text(PLAY)
        done = subprocess.run(
            [
                ANSIBLE,
                "-i",
                tmp_path / "hosts.json",
                tmp_path / "play.yml",
                "-e",
                f"to={path}",
                "-e",
                f"strict={strict}",
            ],
            cwd=PROJECT,
            env={
                "PATH": f"{ANSIBLE.parent}:/usr/bin:/bin",
                "HOME": str(tmp_path),
                "LC_ALL": "C.UTF-8",
                "RECOVERY_REPORT": "",
                "ANSIBLE_ACTION_PLUGINS": str(PROJECT / "playbooks/action_plugins"),
                "ANSIBLE_LIBRARY": str(PROJECT / "playbooks/library"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        written = json.loads(path.read_text()) if path.is_file() else None
        return done.returncode, done.stdout + done.stderr, written

    return run


def test_the_play_shows_the_table_and_writes_the_file(report):
    status, said, written = report({"ct200": diagnosis(), "ct201": healthy(), "ct202": None})

    assert status == 0, said
    assert "uvm_major_not_allowed: nvidia-uvm has major 511 now" in said
    assert "1 of 3 nodes healthy; repairable: ct200; no diagnosis: ct202. The whole evidence: " in said
    assert [one["node"] for one in written["nodes"]] == ["ct200", "ct201"]
    assert written["nodes"][0] == diagnosis()
    assert written["missing"] == [{"node": "ct202", "why": NO_DIAGNOSIS}]


def test_strict_fails_after_the_table_and_the_file(report):
    status, said, written = report({"ct200": diagnosis()}, strict=True)

    assert status == 2
    assert written["verdict"] == "repairable"
    assert "Not every node is healthy (gpu_probe_strict): 0 of 1 node healthy; repairable: ct200." in said
    assert said.index("node   verdict") < said.index("FAILED")


def test_strict_is_content_with_healthy_nodes(report):
    status, said, _ = report({"ct200": healthy("ct200")}, strict=True)

    assert status == 0, said


def test_a_file_that_cannot_be_written_is_a_failure_after_the_table(report, tmp_path):
    (tmp_path / "taken").touch()
    status, said, _ = report({"ct200": healthy("ct200")}, to=tmp_path / "taken/diagnosis.json")

    assert status == 2
    assert "1 of 1 node healthy" in said
    assert "Choose another results_dir" in said
