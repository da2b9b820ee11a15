"""Each file of tests/data/evidence leads to the causes that it names: no more, no fewer, in order."""

import json

import evidence_cases
import jsonschema
import pytest
from ansible.module_utils.gpu_probe.cause import LADDER
from ansible.module_utils.gpu_probe.causes import TABLE
from ansible.module_utils.gpu_probe.diagnose import diagnose, next_repair

PROJECT = evidence_cases.FOLDER.parents[2]
SCHEMA = json.loads((PROJECT / "collector/schemas/diagnosis.schema.json").read_text())


@pytest.fixture(params=evidence_cases.NAMES)
def case(request):
    return evidence_cases.load(request.param)


@pytest.fixture
def diagnosis(case):
    return diagnose(**case.arguments())


def of_severity(diagnosis, *severities):
    return [cause for cause in diagnosis["causes"] if cause["severity"] in severities]


def test_the_right_causes_are_named_in_order(case, diagnosis):
    found = [cause["name"] for cause in diagnosis["causes"] if cause["severity"] != "note"]
    if diagnosis["verdict"] == "healthy":
        found = [diagnosis["causes"][0]["name"]]

    assert found == case.expect["causes"], [cause["sentence"] for cause in diagnosis["causes"]]


def test_the_right_notes_come_after_them(case, diagnosis):
    notes = [cause["name"] for cause in of_severity(diagnosis, "note") if cause["name"] != "ok"]

    assert notes == case.expect["notes"]
    assert diagnosis["causes"] == [
        *(cause for cause in diagnosis["causes"] if cause["name"] == "ok"),
        *of_severity(diagnosis, "repairable", "needs_person"),
        *(cause for cause in of_severity(diagnosis, "note") if cause["name"] != "ok"),
    ]


def test_verdict_and_repairs_are_right(case, diagnosis):
    repairs = [cause["repair"] for cause in of_severity(diagnosis, "repairable")]

    assert diagnosis["verdict"] == case.expect["verdict"]
    assert repairs == case.expect["repairs"]
    assert next_repair(diagnosis) == min(repairs, key=LADDER.index, default=None)


def test_the_sentences_say_it(case, diagnosis):
    said = "\n".join(cause["sentence"] for cause in diagnosis["causes"])

    for words in case.expect.get("says", []):
        assert words in said


def test_sentences_and_proof_are_fit_to_print(diagnosis):
    for cause in diagnosis["causes"]:
        assert cause["sentence"].endswith((".", "?"))
        assert "None" not in cause["sentence"]
        assert cause["proof"], cause["name"]


def test_the_diagnosis_follows_its_schema(diagnosis):
    jsonschema.validate(json.loads(json.dumps(diagnosis)), SCHEMA)


def test_every_cause_of_the_table_is_shown_by_an_evidence_file():
    shown = set()
    for name in evidence_cases.NAMES:
        expect = evidence_cases.load(name).expect
        shown |= {*expect["causes"], *expect["notes"]}

    assert {row.name for row in TABLE} - shown == set()


def test_names_in_the_table_are_unique_and_explain_known_ones():
    names = [row.name for row in TABLE]

    assert len(names) == len(set(names))
    assert {name for row in TABLE for name in row.explains} <= set(names)
    assert {row.repair for row in TABLE} <= {*LADDER, None}
