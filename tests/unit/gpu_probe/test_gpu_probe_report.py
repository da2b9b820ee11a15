"""What an operator and recovery.json are told, and what a reboot changed."""

import copy

import evidence_cases
import pytest
from ansible.module_utils.gpu_probe.changes import what_changed
from ansible.module_utils.gpu_probe.diagnose import diagnose
from ansible.module_utils.gpu_probe.report import proof_words, recovery_entry, summary


def diagnosis_of(name):
    return diagnose(**evidence_cases.load(name).arguments())


def test_the_summary_says_the_verdict_and_the_cause():
    assert summary(diagnosis_of("healthy")) == "healthy: ct200: cuInit(0) is 0, 1 GPU, driver 580.95.05."
    assert summary(diagnosis_of("story")) == (
        "repairable: nvidia-uvm has major 511 now; ct200's rules allow 195, 509, 226, 234: opening "
        "/dev/nvidia-uvm is refused (EPERM), so cuInit(0) is 999."
    )


def test_recovery_gets_only_what_an_earlier_probe_did_not_say():
    first, second = diagnosis_of("story"), diagnosis_of("story-repaired-not-restarted")

    entry = recovery_entry(second, first)

    assert [cause["name"] for cause in entry["causes"]] == ["config_not_applied"]
    assert recovery_entry(first, first)["causes"] == []
    assert [cause["name"] for cause in recovery_entry(first, {})["causes"]] == [
        "uvm_major_not_allowed",
        "stale_rule_grants_other_driver",
    ]


def test_a_healthy_node_has_no_cause_in_recovery():
    assert recovery_entry(diagnosis_of("healthy"), {})["causes"] == []


def test_a_proof_is_put_into_words():
    (cause, *_notes) = diagnosis_of("story")["causes"]

    words = proof_words(cause["proof"])

    assert "major_now=511" in words
    assert "allowed_majors=[195, 509, 226, 234]" in words
    assert "open={/dev/nvidia-uvm EPERM}" in words


@pytest.fixture
def before():
    return diagnosis_of("healthy")


def test_the_same_boot_changes_nothing(before):
    assert what_changed(before, copy.deepcopy(before)) == []


def test_a_reboot_is_told_by_what_it_changed(before):
    after = copy.deepcopy(before)
    host, node = after["host_evidence"], after["node_evidence"]
    host["boot_id"] = "other"
    host["kernel"] = "6.8.12-11-pve"
    host["driver"]["version"] = "580.105.08"
    host["proc_devices"] = [
        [508, "nvidia-uvm"] if row[1] == "nvidia-uvm" else row for row in host["proc_devices"]
    ]
    host["gpus"][0]["link"]["width"] = 8
    host["gpus"][0]["link"]["speed_gts"] = 2.5
    host["containers"]["200"]["live"]["cpuset"] = "32-63"
    host["memory"]["MemAvailable"] -= 100 << 30
    node["cuda"]["devices"][0]["uuid"] = "GPU-other"

    changes = what_changed(before, after)

    assert [change["what"] for change in changes] == [
        "boot",
        "kernel",
        "driver",
        "majors",
        "PCIe link widths",
        "GPU order",
        "cpuset",
        "host's free memory (GiB)",
    ]
    majors = next(change for change in changes if change["what"] == "majors")
    assert (majors["before"]["nvidia-uvm"], majors["after"]["nvidia-uvm"]) == (511, 508)


def test_what_was_not_seen_has_not_changed(before):
    assert what_changed(before, {"vmid": 200}) == []
    assert what_changed({}, before) == []
