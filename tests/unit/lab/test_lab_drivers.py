"""The stand-in drivers: who plays nvidia-uvm, and what /proc/devices shows of it."""

import importlib
import json
import platform
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.lab import drivers
from tests.lab.disks import container_config
from tests.lab.errors import LabError
from tests.lab.fleet import make_fleet
from tests.lab.kernel import modules, shown, state
from tests.lab.pct.conf import parse, write

LAB = Path(__file__).parents[2] / "lab"
CPUID, MSR, TUN = drivers.UVM_DONORS
KERNEL = """\
Character devices:
  1 mem
  4 /dev/vc/0
  7 vcs
 10 misc
203 cpu/cpuid

Block devices:
  7 loop
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The host's half (it runs there) on scratch folders."""
    monkeypatch.setattr(state, "RUN", tmp_path)
    monkeypatch.setattr(state, "SETTINGS", tmp_path / "drivers.json")
    (tmp_path / "kernel-devices").write_text(KERNEL)
    drivers.save_settings(settings(), tmp_path)
    return tmp_path


def shown_text(settings, *, loaded=(state.CORE, state.UVM)):
    return shown.devices_text(KERNEL, asdict(settings), set(loaded))


def settings(**changes):
    return replace(drivers.make_settings(0, 2, (CPUID, TUN)), **changes)


def test_the_driver_shows_under_its_name_and_the_donors_do_not():
    assert shown_text(settings()) == (
        "Character devices:\n"
        "  1 mem\n"
        "  4 /dev/vc/0\n"
        "  7 nvidia\n"
        "  7 nvidia-modeset\n"
        "  7 nvidiactl\n"
        " 10 misc\n"
        "203 nvidia-uvm\n"
        "\nBlock devices:\n"
        "  7 loop\n"
    )


def test_a_moved_uvm_leaves_a_free_number_behind():
    text = shown_text(settings(uvm=TUN))

    assert " 10 nvidia-uvm\n" in text
    assert "203" not in text


def test_a_module_that_is_not_loaded_does_not_show():
    assert "nvidia-uvm" not in shown_text(settings(), loaded=[state.CORE])
    assert " 10 misc\n" in shown_text(settings(uvm=TUN), loaded=[state.CORE])


def test_a_driver_that_is_not_built_does_not_show_at_all():
    text = shown_text(settings(), loaded=[])

    assert "nvidia" not in text
    assert "vcs" not in text


def test_modprobe_loads_uvm_and_refuses_what_it_does_not_know(host, capsys):
    state.set_loaded({state.CORE})

    assert modules.modprobe(["nvidia-uvm"]) == 0
    assert "203 nvidia-uvm" in (host / "devices").read_text()

    assert modules.modprobe(["-q", "nvidia-vgpu"]) == 1
    assert "Module nvidia-vgpu not found" in capsys.readouterr().err


def test_modprobe_finds_no_module_of_a_driver_that_is_not_built(host, capsys):
    drivers.save_settings(settings(driver_built=False), host)

    assert modules.modprobe(["nvidia"]) == 1
    assert "Module nvidia not found" in capsys.readouterr().err


def test_the_modules_on_disk_are_for_the_kernel_that_the_driver_was_built_for(tmp_path, capsys):
    root = tmp_path / "modules"

    shown.write_modules(asdict(settings()), root)
    [folder] = root.iterdir()
    assert folder.name == platform.release()
    assert modules.modinfo(["-F", "version", str(folder / "updates/dkms/nvidia.ko")]) == 0
    assert capsys.readouterr().out == "580.95.05\n"

    shown.write_modules(asdict(settings(driver_built=False)), root)
    built = [path.parents[2].name for path in root.glob("*/updates/dkms/nvidia.ko")]
    assert built == [shown.OTHER_KERNEL]


def test_a_boot_applies_pending_ecc_and_forgets_the_power_limit(host, monkeypatch):
    monkeypatch.syspath_prepend(LAB.parent / "sim")
    boot = importlib.import_module("tests.lab.kernel.boot")
    monkeypatch.setattr(boot, "GPU_SETTINGS", host / "gpu-settings.json")
    boot.boot_gpu_settings(asdict(settings()))
    kept = json.loads(boot.GPU_SETTINGS.read_text())
    kept["gpus"][0].update({"ecc.mode.pending": False, "power.limit": 300.0})
    boot.GPU_SETTINGS.write_text(json.dumps(kept))

    boot.boot_gpu_settings(asdict(settings()))

    first = json.loads(boot.GPU_SETTINGS.read_text())["gpus"][0]
    assert (first["ecc.mode.current"], first["power.limit"]) == (False, 600.0)
    assert first["uuid"] == settings().gpus[0].uuid


def test_settings_survive_being_written_and_read(tmp_path):
    kept = settings(uvm=TUN, uvm_loaded_at_boot=False, missing_at_boot=("/dev/nvidia0",))

    drivers.save_settings(kept, tmp_path)

    assert drivers.load_settings(tmp_path) == kept


@pytest.mark.parametrize(("now", "new"), [(CPUID, TUN), (TUN, CPUID)])
def test_a_new_major_is_another_one(now, new):
    assert drivers.next_donor(settings(uvm=now), (CPUID, TUN), "new") == new


def test_a_major_can_be_asked_for_by_number():
    assert drivers.next_donor(settings(), (CPUID, MSR), "202") == MSR


@pytest.mark.parametrize(
    ("wanted", "donors", "words"),
    [("511", (CPUID, TUN), "here: new, 203, 10"), ("new", (CPUID,), "no other stand-in driver opens")],
)
def test_a_major_that_nobody_can_play_is_refused(wanted, donors, words):
    with pytest.raises(LabError, match=words):
        drivers.next_donor(settings(), donors, wanted)


def test_gpus_keep_their_ids_over_reboots_and_differ_between_hosts():
    assert drivers.make_gpus(0, 2) == drivers.make_gpus(0, 2)
    assert not {gpu.uuid for gpu in drivers.make_gpus(0, 2)} & {gpu.uuid for gpu in drivers.make_gpus(1, 2)}


def test_the_first_container_file_is_what_proxmox_would_write_and_lacks_the_present_major():
    text = container_config(make_fleet().nodes[0], settings())

    assert write(parse(text, 200)) == text
    assert "c 7:* rwm" in text
    assert "c 509:* rwm" in text
    assert "c 203:" not in text
