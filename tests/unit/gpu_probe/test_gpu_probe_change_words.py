"""What a reboot changed, in sentences: for each kind, and for a whole pair of diagnoses."""

import copy

import pytest
from ansible.module_utils.gpu_probe.change_words import _WORDS, one_line, sentences
from ansible.module_utils.gpu_probe.changes import _FIELDS, what_changed

MOVED = "GPU 0 was GPU-aaaaaaaa and is GPU-bbbbbbbb, GPU 1 was GPU-bbbbbbbb and is GPU-aaaaaaaa"
A, B, C = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "abc")


def told(what, before, after):
    return sentences([{"what": what, "before": before, "after": after}])


@pytest.mark.parametrize(
    ("what", "before", "after", "said"),
    [
        ("boot", "a", "b", ["the host was booted again"]),
        ("kernel", "6.8.12-4-pve", "6.8.12-9-pve", ["the kernel was 6.8.12-4-pve and is 6.8.12-9-pve"]),
        ("driver", "570.1", "580.2", ["the driver was 570.1 and is 580.2"]),
        (
            "majors",
            {"nvidia": 195, "nvidia-uvm": 509, "nvidia-caps": 234},
            {"nvidia": 195, "nvidia-uvm": 511, "nvidia-nvswitch": 234},
            [
                "nvidia-caps has no major any more (it had 234)",
                "nvidia-nvswitch has the major 234 (it had none)",
                "the major of nvidia-uvm was 509 and is 511",
            ],
        ),
        (
            "PCIe link widths",
            {"0000:41:00.0": "x16", "0000:61:00.0": "x16"},
            {"0000:41:00.0": "x8", "0000:81:00.0": "x16"},
            [
                "GPU 0000:61:00.0 is gone from PCI",
                "GPU 0000:81:00.0 is new on PCI",
                "the link of GPU 0000:41:00.0 was x16 wide and is x8",
            ],
        ),
        ("PCIe link widths", {"0000:41:00.0": "x16"}, {"0000:41:00.0": "xNone"}, []),
        (
            "GPU order",
            [A, B],
            [B, A],
            [f"the GPUs have another order: {MOVED}"],
        ),
        ("GPU order", [A, B], [A, C], ["GPU-bbbbbbbb is gone", "GPU-cccccccc is new"]),
        ("GPU order", [A, B], [B], ["GPU-aaaaaaaa is gone"]),
        (
            "GPU modes",
            {A: {"persistence": True, "ecc": {"current": True, "pending": True}}},
            {A: {"persistence": False, "ecc": {"current": True, "pending": False}}},
            [
                "ecc of GPU-aaaaaaaa was on and is on (off after a reset)",
                "persistence of GPU-aaaaaaaa was on and is off",
            ],
        ),
        ("cpuset", "0-31", "32-63", ["the container had the CPUs 0-31 and has 32-63"]),
        ("host's free memory (GiB)", 1400, 1500, ["the host had 1400 GiB of free memory and has 1500"]),
        ("host's free memory (GiB)", 1400, 1410, []),
        ("container's file", "1", "2", ["the container's file was edited"]),
        (
            "container's memory limit",
            64 << 30,
            128 << 30,
            ["the container's memory limit was 64 GiB and is 128"],
        ),
        ("Proxmox VE", "8.4.1", "9.0.3", ["Proxmox VE was 8.4.1 and is 9.0.3"]),
    ],
)
def test_a_change_is_said_in_a_sentence(what, before, after, said):
    assert told(what, before, after) == said


def test_an_unknown_change_is_said_plainly():
    assert told("weather", "fair", "foul") == ["weather was fair and is foul"]


def test_the_words_are_for_changes_that_are_looked_for():
    assert _WORDS.keys() <= {what for what, _read in _FIELDS}


def test_a_line_stays_short():
    changes = [{"what": f"thing {number}", "before": 1, "after": 2} for number in range(8)]

    assert one_line(changes).endswith("thing 4 was 1 and is 2; 3 more")
    assert one_line(changes[:2]) == "thing 0 was 1 and is 2; thing 1 was 1 and is 2"


def test_a_reboot_as_it_happened_is_told_from_two_diagnoses():
    gpus = [{"pci": "0000:41:00.0", "link": {"width": 16}}]
    before = {
        "vmid": 200,
        "host_evidence": {
            "boot_id": "one",
            "kernel": "6.8.12-4-pve",
            "proc_devices": [[195, "nvidia"], [509, "nvidia-uvm"], [7, "vcs"]],
            "gpus": gpus,
            "memory": {"MemAvailable": 1400 << 30},
            "containers": {"200": {"live": {"cpuset": "0-15"}}},
        },
        "node_evidence": {"cuda": {"devices": [{"uuid": A}, {"uuid": B}]}},
    }
    after = copy.deepcopy(before)
    after["host_evidence"].update(
        boot_id="two", proc_devices=[[195, "nvidia"], [511, "nvidia-uvm"], [7, "vcs"]]
    )
    after["host_evidence"]["containers"]["200"]["live"]["cpuset"] = "16-31"
    after["node_evidence"] = {}  # CUDA is broken: the order was not seen, so nothing is said of it

    assert sentences(what_changed(before, after)) == [
        "the host was booted again",
        "the major of nvidia-uvm was 509 and is 511",
        "the container had the CPUs 0-15 and has 16-31",
    ]
    assert sentences(what_changed(before, before)) == []
