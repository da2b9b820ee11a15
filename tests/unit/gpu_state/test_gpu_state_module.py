"""The module on a stand-in nvidia-smi: what is set, what is refused, what is said."""

import pytest

WANTED = {"persistence": True, "power_limit_w": 450, "graphics_clocks_mhz": [300, 2400]}


def changes(result):
    """The calls that change something, without the choice of GPUs."""
    return [call.split(" ", 2)[2] for call in result["calls"] if not call.startswith("--query")]


def test_nothing_declared_touches_nothing_and_records_everything(host):
    result = host.run()

    assert result["changed"] is False
    assert len(result["calls"]) == 1
    recorded = result["gpus"]["GPU-00000000-aaaa-bbbb-cccc-000000000000"]
    assert recorded == {
        "index": 0,
        "pci": "00000000:41:00.0",
        "name": "NVIDIA RTX PRO 6000 Blackwell",
        "driver_version": "580.95.05",
        "persistence": False,
        "ecc": True,
        "mig": None,
        "compute_mode": "default",
        "power_limit_w": 600.0,
        "power_enforced_w": 600.0,
        "graphics_clocks_mhz": None,
        "memory_clocks_mhz": None,
    }
    assert result["summary"] == (
        "state of 2 GPUs recorded (power limit 600 W); nothing is declared, so nothing was touched"
    )


def test_what_differs_is_set_and_proven(host):
    result = host.run(WANTED)

    assert result["changed"] is True
    assert changes(result) == ["-pm 1", "-pl 450", "-lgc 300,2400"]
    for index in (0, 1):
        assert host.gpu(index)["power.limit"] == 450
        assert host.gpu(index)["locked.graphics"] == [300, 2400]
    assert result["summary"] == (
        "set persistence on (was off) on GPU 0-1; power limit 450 W (was 600 W) on GPU 0-1; "
        "graphics clocks 300 to 2400 MHz (was not known) on GPU 0-1"
    )


def test_a_second_run_changes_nothing_but_locks_the_clocks_again(host):
    host.run(WANTED)
    host.set_gpu(1, locked__graphics=None)  # a reset of one GPU, which nothing can show
    result = host.run(WANTED)

    assert result["changed"] is False
    assert changes(result) == ["-lgc 300,2400"]
    assert host.gpu(1)["locked.graphics"] == [300, 2400]
    assert result["summary"] == "2 GPUs as declared: persistence, power limit, graphics clocks"


def test_check_mode_predicts_what_the_real_run_does(host):
    predicted = host.run(WANTED, check=True)
    assert host.gpu(0)["power.limit"] == 600
    assert not host.locks.exists()
    real = host.run(WANTED)

    assert predicted["changed"] is real["changed"] is True
    assert predicted["diff"] == real["diff"]
    assert predicted["summary"] == "would " + real["summary"]
    assert changes(predicted) == []


def test_the_diff_shows_each_gpu_before_and_after(host):
    diff = host.run({"power_limit_w": 450, "gpus": {"1": {"power_limit_w": 400}}})["diff"]

    assert [line for line in diff["before"].splitlines() if "power limit" in line] == [
        "  power limit: 600 W"
    ] * 2
    assert [line for line in diff["after"].splitlines() if "power limit" in line] == [
        "  power limit: 450 W",
        "  power limit: 400 W",
    ]
    assert diff["before"].splitlines()[0] == (
        "GPU 0 (GPU-00000000-aaaa-bbbb-cccc-000000000000, 00000000:41:00.0) NVIDIA RTX PRO 6000 Blackwell"
    )


def test_a_reboot_forgets_the_settings_and_a_run_restores_them(host):
    host.run(WANTED)
    host.reboot()
    assert host.gpu(0)["power.limit"] == 600
    result = host.run(WANTED)

    assert result["changed"] is True
    assert host.gpu(0)["power.limit"] == 450
    assert host.gpu(0)["locked.graphics"] == [300, 2400]
    assert host.gpu(0)["persistence_mode"] is True


def test_a_record_of_locks_from_another_boot_does_not_count(host):
    host.run(WANTED)
    text = host.locks.read_text()
    host.locks.write_text(text.replace('"boot_id": "', '"boot_id": "0'))

    assert host.run(WANTED, check=True)["changed"] is True


def test_one_gpu_by_uuid_goes_over_the_rest(host):
    uuid = host.gpu(1)["uuid"]
    host.run({"power_limit_w": 450, "gpus": {uuid: {"power_limit_w": "default"}}})

    assert (host.gpu(0)["power.limit"], host.gpu(1)["power.limit"]) == (450, 600)


def test_ecc_is_requested_and_said_to_wait(host):
    result = host.run({"ecc": False})

    assert result["changed"] is True
    assert (host.gpu(0)["ecc.mode.current"], host.gpu(0)["ecc.mode.pending"]) == (True, False)
    assert result["notes"] == ["GPU 0-1: ECC is on until the GPU is reset or the host rebooted, then off"]
    assert result["gpus"][host.gpu(0)["uuid"]]["ecc"] is True
    assert "  ECC: on, off after a reset or reboot" in result["diff"]["after"]


def test_ecc_that_waits_is_no_change_again_and_is_there_after_the_reboot(host):
    host.run({"ecc": False})
    waiting = host.run({"ecc": False})
    host.reboot()
    after = host.run({"ecc": False})

    assert waiting["changed"] is False
    assert len(waiting["notes"]) == 1
    assert (after["changed"], after["notes"]) == (False, [])


def test_mig_on_a_card_in_use_waits(host):
    host.set_gpu(0, mig__mode__current=False, mig__mode__pending=False, busy=True)
    result = host.run({"gpus": {"0": {"mig": True}}})

    assert result["changed"] is True
    assert result["notes"] == ["GPU 0: MIG is off until the GPU is reset or the host rebooted, then on"]


def test_mig_on_a_free_card_acts_at_once(host):
    host.set_gpu(0, mig__mode__current=False, mig__mode__pending=False)
    result = host.run({"gpus": {"0": {"mig": True}}})

    assert (result["changed"], result["notes"]) == (True, [])


def test_off_is_what_a_card_without_it_has(host):
    assert host.run({"mig": False})["changed"] is False


def test_a_compute_mode_is_set_by_its_name(host):
    result = host.run({"compute_mode": "exclusive_process"})

    assert changes(result) == ["-c 3"]
    assert result["gpus"][host.gpu(0)["uuid"]]["compute_mode"] == "exclusive_process"


def test_unlocking_clocks_is_a_change_only_when_they_were_locked_by_us(host):
    assert host.run({"graphics_clocks_mhz": "unlocked"})["changed"] is False
    host.run({"graphics_clocks_mhz": 2100})
    result = host.run({"graphics_clocks_mhz": "unlocked"})

    assert result["changed"] is True
    assert host.gpu(0)["locked.graphics"] is None
    assert "(was 2100 MHz)" in result["summary"]


# What is refused


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"power_limit_w": 700}, "power_limit_w 700 is out of range: this card takes 150 to 600 W"),
        (
            {"mig": True},
            "mig can't be set: this card has no such setting (nvidia-smi says [N/A]). Don't declare it there",
        ),
        (
            {"graphics_clocks_mhz": 4000},
            "graphics_clocks_mhz 4000 to 4000 is more than its clock can be (3090 MHz)",
        ),
        ({"powr_limit_w": 450}, "gpu_state_declared.powr_limit_w is no setting; did you mean power_limit_w?"),
        ({"ecc": "maybe"}, "gpu_state_declared.ecc is 'maybe'; give true or false"),
        (
            {"gpus": {"7": {"ecc": True}}},
            "gpu_state_declared.gpus.7: no such GPU here; there are: 0 (GPU-00000000-",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_touched(host, declared, said):
    result = host.run({**declared, "persistence": True})

    assert result["failed"] is True
    assert said in result["msg"]
    assert changes(result) == []
    assert host.gpu(0)["persistence_mode"] is False


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({"driver": "not_loaded"}, "the NVIDIA driver is not loaded"),
        ({"driver": "mismatch"}, "its library and the loaded driver have different versions"),
    ],
)
def test_a_driver_that_does_not_answer_is_named(host, faults, said):
    host.fault(**faults)
    result = host.run(WANTED)

    assert result["failed"] is True
    assert said in result["msg"]


def test_no_gpu_is_named(host):
    state = host.read()
    host.write({**state, "gpus": []})

    assert "the driver finds no GPU" in host.run(WANTED)["msg"]


def test_a_missing_tool_is_named(host):
    result = host.run(WANTED, command="/nowhere/nvidia-smi")

    assert result["failed"] is True
    assert "/nowhere/nvidia-smi is not on this host: is the driver installed?" in result["msg"]


def test_without_a_declaration_a_host_that_cannot_be_read_is_no_failure(host):
    host.fault(driver="not_loaded")
    result = host.run()

    assert not result.get("failed")
    assert result["gpus"] == {}
    assert result["summary"].startswith("GPU state not recorded: ")


# What nvidia-smi does not do


def test_no_permission_is_a_failure_with_its_words(host):
    host.fault(permissions=True)
    result = host.run({"power_limit_w": 450})

    assert result["failed"] is True
    assert "power limit could not be set to 450 W: " in result["msg"]
    assert "Insufficient Permissions" in result["msg"]
    assert result["msg"].endswith("Nothing was changed.")


def test_a_warning_with_status_0_is_still_a_failure(host):
    host.fault(ignored=["-pl"])
    result = host.run({"power_limit_w": 450, "persistence": True})

    assert result["failed"] is True
    assert "nvidia-smi reported no error, but it did not take effect" in result["msg"]
    assert "Set before that: persistence on (was off) on GPU 0-1." in result["msg"]
    assert result["changed"] is True


def test_memory_clocks_that_can_only_be_locked_deferred_fail_for_that_gpu_alone(host):
    host.set_gpu(1, memory_lock=False)
    result = host.run({"memory_clocks_mhz": 14001})

    assert result["failed"] is True
    assert "GPU 1 (GPU-00000001-aaaa-bbbb-cccc-000000000001, 00000000:61:00.0)" in result["msg"]
    assert "Please use --lock-memory-clocks-deferred instead" in result["msg"]
    assert "Set before that: memory clocks 14001 MHz (was not known) on GPU 0." in result["msg"]


def test_clocks_that_the_driver_bends_are_not_called_locked(host):
    host.set_gpu(0, clock_cap=2100)
    result = host.run({"graphics_clocks_mhz": [300, 2400]})

    assert result["failed"] is True
    assert (
        "graphics clocks could not be set to 300 to 2400 MHz: the driver locked 300 to 2100 MHz"
        in result["msg"]
    )
    assert result["gpus"][host.gpu(0)["uuid"]]["graphics_clocks_mhz"] is None
    assert result["gpus"][host.gpu(1)["uuid"]]["graphics_clocks_mhz"] == [300, 2400]


def test_a_lock_that_is_refused_now_is_forgotten(host):
    host.run({"graphics_clocks_mhz": 2100})
    host.fault(permissions=True)
    host.run({"graphics_clocks_mhz": 2100})
    host.fault()

    assert host.run({"graphics_clocks_mhz": 2100}, check=True)["changed"] is True


def test_a_field_that_an_older_driver_does_not_know_is_left_out(host):
    host.fault(unknown_fields=["mig.mode.current", "mig.mode.pending"])
    result = host.run({"power_limit_w": 450})

    assert result["changed"] is True
    assert len([call for call in result["calls"] if call.startswith("--query")]) == 6  # 3 a reading


def test_a_limit_that_the_board_lowers_is_noted(host):
    host.set_gpu(0, board_watts=350.0)

    assert host.run()["notes"] == [
        "GPU 0: 350 W is enforced although the limit is 600 W (board or chassis ask for less)"
    ]


def test_a_limit_without_persistence_is_noted(host):
    notes = host.run({"power_limit_w": 450})["notes"]

    assert len(notes) == 1
    assert "GPU 0-1: persistence is off, so the driver may forget" in notes[0]


def test_a_reading_that_failed_is_noted_and_cannot_be_declared(host):
    host.set_gpu(0, power__limit="[Unknown Error]")

    assert host.run()["notes"] == [
        "GPU 0: not readable: power_enforced_w [Unknown Error], power_limit_w [Unknown Error]"
    ]
    assert "power_limit_w can't be set: it can't be read" in host.run({"power_limit_w": 450})["msg"]


def test_the_record_of_the_run_has_the_step_and_the_state(host):
    recovery = host.run({"power_limit_w": 450})["recovery"]

    assert recovery["steps"][0]["step"] == "gpu_state"
    assert recovery["steps"][0]["changed"] is True
    assert recovery["steps"][0]["outcome"] == "power limit 450 W (was 600 W) on GPU 0-1"
    assert recovery["gpu_state"]["gpus"].keys() == {host.gpu(0)["uuid"], host.gpu(1)["uuid"]}
