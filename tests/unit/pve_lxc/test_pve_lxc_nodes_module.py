"""pve_lxc_nodes in pairs: check mode predicts, the run agrees, a second run changes nothing."""

import os
import stat
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pve_lxc_scratch import DEVICES

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need root")


def nodes(run, scratch, **more):
    arguments = {"load": False, "expected_gpus": 1, **more}
    places = {name: scratch.places[name] for name in ("proc_devices", "driver_dir", "dev_dir", "conf_dir")}
    before = scratch.snapshot()
    predicted = run("pve_lxc_nodes", check=True, **places, **arguments)
    assert scratch.snapshot() == before
    done = run("pve_lxc_nodes", **places, **arguments)
    for key in ("changed", "made", "diff", "failed"):
        assert predicted.get(key) == done.get(key)
    if not done.get("failed"):
        assert run("pve_lxc_nodes", **places, **arguments)["changed"] is False
    return done


def numbers(scratch):
    return {
        str(path.relative_to(scratch.root / "dev")): (
            os.major(path.lstat().st_rdev),
            os.minor(path.lstat().st_rdev),
            stat.filemode(path.lstat().st_mode),
        )
        for path in (scratch.root / "dev").rglob("nvidia*")
        if not path.is_dir()
    }


RIGHT = {
    "nvidia0": (195, 0, "crw-rw-rw-"),
    "nvidiactl": (195, 255, "crw-rw-rw-"),
    "nvidia-uvm": (511, 0, "crw-rw-rw-"),
    "nvidia-uvm-tools": (511, 1, "crw-rw-rw-"),
}


def test_missing_nodes_are_made(run, scratch):
    done = nodes(run, scratch)
    assert done["changed"]
    assert numbers(scratch) == RIGHT
    assert "nvidia-uvm is 511:0, mode 0666" in done["diff"]["after"]


def test_a_node_of_another_major_is_replaced_and_named(run, scratch):
    scratch.make_node("nvidia-uvm", 509, 0)
    done = nodes(run, scratch)
    assert numbers(scratch) == RIGHT
    assert "nvidia-uvm is 509:0, but nvidia-uvm is 511:0" in done["diff"]["before"]


def test_a_narrow_mode_is_opened(run, scratch):
    scratch.make_node("nvidia0", 195, 0, 0o600)
    assert "nvidia0 has mode 0600, 0666 is needed" in nodes(run, scratch)["diff"]["before"]
    assert numbers(scratch) == RIGHT


def test_a_regular_file_stops_everything_and_stays(run, scratch):
    scratch.put("dev/nvidia-uvm", "what is this")
    before = scratch.snapshot()
    done = nodes(run, scratch)
    assert done["failed"]
    assert "nvidia-uvm is a regular file of 12 bytes, not a device. Nothing was changed" in done["msg"]
    assert "pve_lxc_replace_files: true" in done["msg"]
    assert scratch.snapshot() == before


def test_a_regular_file_goes_when_that_is_allowed(run, scratch):
    scratch.put("dev/nvidia-uvm", "")
    assert nodes(run, scratch, replace_files=True)["changed"]
    assert numbers(scratch) == RIGHT


def test_a_folder_is_never_replaced(run, scratch):
    (scratch.root / "dev/nvidia-uvm").mkdir()
    assert "is a folder, not a device" in nodes(run, scratch, replace_files=True)["msg"]


def test_nodes_that_the_containers_file_names_are_made_too(run, scratch):
    scratch.put("devices", DEVICES.replace("226 drm\n", "508 nvidia-caps\n"))
    scratch.conf.write_text("arch: amd64\ndev0: /dev/nvidia-caps/nvidia-cap1\ndev1: /dev/nvidia-modeset\n")
    nodes(run, scratch, vmid=200)
    assert numbers(scratch) == {
        **RIGHT,
        "nvidia-modeset": (195, 254, "crw-rw-rw-"),
        "nvidia-caps/nvidia-cap1": (508, 1, "crw-rw-rw-"),
    }


def test_before_loading_check_mode_says_what_can_be_told_only_later(run, scratch):
    scratch.put("devices", "Character devices:\n195 nvidia\n")
    scratch.put("bin/modprobe", f"#!/bin/sh\necho 511 nvidia-uvm >>{scratch.root}/devices\n")
    (scratch.root / "bin/modprobe").chmod(0o755)
    arguments = {name: scratch.places[name] for name in ("proc_devices", "driver_dir", "dev_dir")}
    predicted = run("pve_lxc_nodes", check=True, expected_gpus=1, **arguments)
    assert predicted["loaded"] == ["nvidia-uvm"]
    assert "nvidia-uvm, nvidia-uvm-tools: known only after the drivers are loaded" in predicted["progress"]
    assert numbers(scratch) == {}
    done = run("pve_lxc_nodes", expected_gpus=1, **arguments)
    assert [entry["step"] for entry in done["recovery"]["steps"]] == ["load_modules", "make_nodes"]
    assert numbers(scratch) == RIGHT
    assert run("pve_lxc_nodes", expected_gpus=1, **arguments)["changed"] is False


def test_a_host_without_the_driver_says_what_was_tried(run, scratch):
    scratch.put("devices", "Character devices:\n1 mem\n")
    scratch.put("bin/modprobe", '#!/bin/sh\necho "modprobe: FATAL: Module $1 not found" >&2\nexit 1\n')
    (scratch.root / "bin/modprobe").chmod(0o755)
    arguments = {name: scratch.places[name] for name in ("proc_devices", "driver_dir", "dev_dir")}
    done = run("pve_lxc_nodes", **arguments)
    assert "nvidia, nvidia-uvm couldn't be loaded" in done["msg"]
    assert "Module nvidia not found" in done["msg"]
