"""Evidence may lack any field or hold nonsense: the diagnosis never fails, and never makes up health."""

import copy
import json

import evidence_cases
import jsonschema
import pytest
from ansible.module_utils.gpu_probe.changes import what_changed
from ansible.module_utils.gpu_probe.diagnose import diagnose
from ansible.module_utils.gpu_probe.report import proof_words, recovery_entry, summary
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SCHEMA = json.loads(
    (evidence_cases.FOLDER.parents[2] / "collector/schemas/diagnosis.schema.json").read_text()
)
NONSENSE = st.sampled_from(
    [None, True, False, 0, -1, 10**20, 3.5, "", "x", "0999", "\ud800", [], [None], [[]], {}, {"x": []}, [{}]]
)
CASES = {name: evidence_cases.load(name) for name in evidence_cases.NAMES}


def paths_of(tree, prefix=()):
    """Every place in a tree, containers included."""
    steps = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in steps:
        yield (*prefix, key)
        yield from paths_of(value, (*prefix, key))


def put(tree, path, value):
    *way, last = path
    for key in way:
        tree = tree[key]
    tree[last] = copy.deepcopy(value)


def drop(tree, path):
    *way, last = path
    for key in way:
        tree = tree[key]
    del tree[last]


@st.composite
def damaged(draw):
    """A case with some of its evidence taken away or replaced by nonsense."""
    case = copy.deepcopy(CASES[draw(st.sampled_from(evidence_cases.NAMES))])
    for _ in range(draw(st.integers(1, 4))):
        side = draw(st.sampled_from([case.host, case.inside, case.link]))
        places = list(paths_of(side))
        if places:
            path = draw(st.sampled_from(places))
            if draw(st.booleans()):
                drop(side, path)
            else:
                put(side, path, draw(NONSENSE))
    return case


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=damaged())
def test_damaged_evidence_never_crashes(case):
    diagnosis = diagnose(**case.arguments())

    assert diagnosis["causes"]
    if diagnosis["verdict"] == "healthy":
        assert diagnosis["node_evidence"]["cuda"]["cu_init"] == 0
    assert summary(diagnosis)
    assert all(isinstance(proof_words(cause["proof"]), str) for cause in diagnosis["causes"])
    assert recovery_entry(diagnosis, diagnosis)["causes"] == []
    assert isinstance(what_changed(diagnosis, diagnosis), list)


@settings(max_examples=200, deadline=None)
@given(lines=st.lists(st.text(max_size=60), max_size=12), data=st.data())
def test_any_container_file_is_read(lines, data):
    case = copy.deepcopy(CASES["story"])
    facts = case.host["containers"]["200"]
    known = facts["config_text"].splitlines()
    for line in lines:
        known.insert(data.draw(st.integers(0, len(known))), line)
    facts["config_text"] = "\n".join(known)

    assert diagnose(**case.arguments())["causes"]


def test_every_single_field_may_be_missing():
    for side in ("host", "inside", "link"):
        whole = getattr(CASES["story"], side)
        for path in paths_of(whole):
            case = copy.deepcopy(CASES["story"])
            drop(getattr(case, side), path)
            diagnosis = diagnose(**case.arguments())
            assert diagnosis["verdict"] != "healthy", path


@pytest.mark.parametrize(
    ("side", "field", "named"),
    [
        ("host", "proc_devices", "host: proc_devices"),
        ("host", "device_nodes", "host: device_nodes"),
        ("host", "gpus", "host: gpus"),
        ("host", "kernel_log", "host: kernel_log"),
        ("inside", "shm", "node: shm.total_bytes"),
    ],
)
def test_a_missing_field_is_unseen(side, field, named):
    case = copy.deepcopy(CASES["healthy"])
    drop(getattr(case, side), (field,))

    diagnosis = diagnose(**case.arguments())

    assert named in {entry["what"] for entry in diagnosis["unseen"]}
    assert diagnosis["verdict"] == "healthy"  # cuInit was seen to be 0, so the rest is no reason for alarm


def test_without_any_evidence_nothing_is_claimed():
    case = CASES["healthy"]

    diagnosis = diagnose(**case.asked, link={}, host_evidence=None, node_evidence=None)

    assert diagnosis["verdict"] == "needs_person"
    assert [cause["name"] for cause in diagnosis["causes"]] == ["not_proven"]


def test_what_the_probes_could_not_see_is_passed_on():
    case = copy.deepcopy(CASES["healthy"])
    case.host["unseen"] = [{"what": "GPU processes", "why": "not root"}]

    diagnosis = diagnose(**case.arguments())

    assert {"what": "host: GPU processes", "why": "not root"} in diagnosis["unseen"]
    jsonschema.validate(diagnosis, SCHEMA)
