"""Reading declarations and nvidia-smi's formats, without a GPU."""

import sys

import pytest
from ansible.module_utils.gpu_state import smi
from ansible.module_utils.gpu_state.declared import DeclaredError, for_each, read_declared
from ansible.module_utils.gpu_state.readings import FIELDS, ReadingError, read_csv
from ansible.module_utils.gpu_state.words import ranges

FIELD_NAMES = tuple(FIELDS)


def line(**words):
    """A line of the query's answer, with the words of a card that has everything."""
    usual = {
        "index": "0",
        "uuid": "GPU-a",
        "pci.bus_id": "00000000:41:00.0",
        "name": "NVIDIA H200",
        "driver_version": "580.95.05",
        "persistence_mode": "Enabled",
        "ecc.mode.current": "Enabled",
        "ecc.mode.pending": "Enabled",
        "mig.mode.current": "Disabled",
        "mig.mode.pending": "Disabled",
        "compute_mode": "Default",
        "power.limit": "700.00",
        "enforced.power.limit": "700.00",
        "power.default_limit": "700.00",
        "power.min_limit": "200.00",
        "power.max_limit": "700.00",
        "clocks.max.graphics": "1980",
        "clocks.max.memory": "3201",
        "clocks.current.graphics": "345",
        "clocks.current.memory": "3201",
    }
    return ", ".join({**usual, **words}.values())


def test_two_gpus_are_read_in_the_order_of_their_index():
    second = line(index="1", uuid="GPU-b", **{"power.limit": "650.50", "compute_mode": "Exclusive_Process"})
    gpus = read_csv(second + "\n" + line() + "\n", FIELD_NAMES)

    assert [(gpu.index, gpu.uuid) for gpu in gpus] == [(0, "GPU-a"), (1, "GPU-b")]
    assert gpus[1].values["power_limit_w"] == 650.5
    assert gpus[1].values["compute_mode"] == "exclusive_process"
    assert gpus[0].values["persistence"] is True
    assert gpus[0].unread == {}


@pytest.mark.parametrize(
    ("word", "lacks"),
    [
        ("[N/A]", True),
        ("[Not Supported]", True),
        ("N/A", True),
        ("[Insufficient Permissions]", False),
        ("[Unknown Error]", False),
        ("[GPU requires reset]", False),
        ("ERR!", False),
    ],
)
def test_a_word_in_the_place_of_a_value_is_kept_as_the_reason(word, lacks):
    (gpu,) = read_csv(line(**{"power.limit": word}), FIELD_NAMES)

    assert "power_limit_w" not in gpu.values
    assert gpu.unread["power_limit_w"] == word
    assert gpu.lacks("power_limit_w") is lacks


@pytest.mark.parametrize("text", ["0, GPU-a\n", "Fan speed is odd\n"])
def test_an_answer_of_another_shape_is_refused(text):
    with pytest.raises(ReadingError, match="nvidia-smi printed"):
        read_csv(text, FIELD_NAMES)


def test_a_field_that_was_not_asked_is_unknown_to_the_driver():
    names = tuple(name for name in FIELD_NAMES if name != "mig.mode.current")
    words = line().split(", ")
    del words[8]
    (gpu,) = read_csv(", ".join(words), names)

    assert gpu.unread["mig"] == "unknown to this driver"


@pytest.mark.parametrize(
    ("setting", "written", "read"),
    [
        ("persistence", "yes", True),
        ("ecc", False, False),
        ("mig", "Disabled", False),
        ("power_limit_w", "450", 450.0),
        ("power_limit_w", "Default", "default"),
        ("graphics_clocks_mhz", 2100, (2100, 2100)),
        ("graphics_clocks_mhz", "300,2100", (300, 2100)),
        ("graphics_clocks_mhz", [300, 2100], (300, 2100)),
        ("memory_clocks_mhz", "unlocked", "unlocked"),
        ("compute_mode", "EXCLUSIVE_PROCESS", "exclusive_process"),
    ],
)
def test_a_value_is_read_as_it_was_meant(setting, written, read):
    assert read_declared({setting: written}) == {"": {setting: read}}


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ("power_limit_w", 0),
        ("power_limit_w", True),
        ("power_limit_w", "lots"),
        ("graphics_clocks_mhz", [2100, 300]),
        ("graphics_clocks_mhz", [1, 2, 3]),
        ("graphics_clocks_mhz", -1),
        ("compute_mode", "exclusive_thread"),
        ("gpus", [1]),
        ("gpus", {"0": 5}),
    ],
)
def test_a_value_that_cannot_be_meant_is_named(setting, written):
    with pytest.raises(DeclaredError, match=rf"gpu_state_declared\.{setting}"):
        read_declared({setting: written})


def test_every_problem_is_named_at_once():
    with pytest.raises(DeclaredError) as caught:
        read_declared({"ecc": "x", "gpus": {"0": {"mig": "y", "colour": 1}}})

    assert len(caught.value.problems) == 3


def test_nothing_is_declared_by_an_empty_value():
    assert read_declared({"power_limit_w": None, "gpus": None}) == {"": {}}


def test_uuid_goes_over_index_and_index_over_all():
    gpus = read_csv(line() + "\n" + line(index="1", uuid="GPU-b"), FIELD_NAMES)
    declared = read_declared(
        {
            "power_limit_w": 1,
            "ecc": True,
            "gpus": {0: {"power_limit_w": 2}, "GPU-a": {"power_limit_w": 3}, "1": {"ecc": False}},
        }
    )

    assert for_each(declared, gpus) == {
        "GPU-a": {"power_limit_w": 3.0, "ecc": True},
        "GPU-b": {"power_limit_w": 1.0, "ecc": False},
    }


MIG_WAITS = """\
Warning: MIG mode is in pending enable state for GPU 00000000:41:00.0:Not Supported
Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU 00000000:41:00.0
All done.
"""
NO_CLOCKS = """\
Setting locked GPU clocks is not supported for GPU 00000000:05:00.0.
Treating as warning and moving on.
All done.
"""
NOT_ALLOWED = """\
Failed to set power management limit for GPU 00000000:11:00.0: Insufficient Permissions
Terminating early due to previous errors.
"""


@pytest.mark.parametrize(
    ("status", "output", "lines"),
    [
        (0, "All done.\n", []),
        (0, "Enabled persistence mode for GPU 00000000:41:00.0.\nAll done.\n", []),
        (0, MIG_WAITS, []),
        (0, NO_CLOCKS, NO_CLOCKS.splitlines()[:1]),
        (255, NOT_ALLOWED, NOT_ALLOWED.splitlines()[:1]),
        (3, "", ["it ended with status 3 and said nothing"]),
    ],
)
def test_a_refusal_is_told_by_its_words_not_by_its_status(status, output, lines):
    assert smi.refusal(status, output) == [line.rstrip(".") for line in lines]


def test_a_command_that_hangs_is_left_and_named():
    with pytest.raises(smi.SmiError, match=r"gave no answer within 0.2 s \(process \d+\)"):
        smi.run([sys.executable, "-c", "import time; time.sleep(3)"], limit_s=0.2)


def test_what_is_said_beside_the_values_is_no_value():
    command = [sys.executable, "-c", f"import sys; print({line()!r}); print('odd linker', file=sys.stderr)"]

    assert [gpu.uuid for gpu in smi.Smi(command).gpus()] == ["GPU-a"]


def test_a_file_that_is_no_program_is_named(tmp_path):
    (tmp_path / "nvidia-smi").touch()

    with pytest.raises(smi.SmiError, match="can't be run: Permission denied"):
        smi.run([str(tmp_path / "nvidia-smi")])


@pytest.mark.parametrize(("numbers", "text"), [([0], "0"), ([0, 1, 2, 5], "0-2, 5"), ([3, 1], "1, 3")])
def test_indices_are_written_short(numbers, text):
    assert ranges(numbers) == text
