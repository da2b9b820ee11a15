"""The boot unit: installed in one call, the same pure code, never a failed boot."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ansible.module_utils.pve_lxc import boot
from pve_lxc_scratch import CONF, DEVICES, REPAIRED, ROLE, load

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need root")
UNIT = (ROLE / "templates/recover-and-bench-devices.service.j2").read_text().split("\n", 1)[1]
LOADS = """#!/bin/sh
sed -i 's/^226 drm/&\\n511 nvidia-uvm/' "$SCRATCH/devices"
"""
SCRIPT = (ROLE / "files/devices_at_boot.py").read_text()


@pytest.fixture
def install(run, scratch):
    def call(*, check=False, **more):
        arguments = {"vmid": 200, "unit": UNIT, "script": SCRIPT, "places": scratch.places, **more}
        arguments.setdefault("wishes", {"grant": "auto", "expected_gpus": 1})
        return run("pve_lxc_boot_unit", check=check, root=str(scratch.root / "root"), **arguments)

    return call


def boot_now(scratch):
    """What systemd would start: its own process, the host's Python, nothing of ours on its path."""
    library = scratch.root / "root/usr/local/lib/recover-and-bench"
    settings = scratch.root / "root/etc/recover-and-bench/devices"
    command = ["/usr/bin/python3", "-sE", library / "devices_at_boot.py", settings]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def test_check_mode_predicts_and_a_second_run_changes_nothing(install, scratch):
    before = scratch.snapshot()
    predicted = install(check=True)
    assert scratch.snapshot() == before
    done = install()
    assert (predicted["changed"], predicted["written"], predicted["diff"]) == (
        True,
        done["written"],
        done["diff"],
    )
    assert "ExecStart=-/usr/bin/python3" in done["diff"]["after"]
    assert install()["changed"] is False


def test_a_second_container_adds_only_its_settings(install, scratch):
    install()
    done = install(vmid=201)
    assert done["written"] == [str(scratch.root / "root/etc/recover-and-bench/devices/201.json")]


def test_a_container_can_be_taken_out(install, scratch):
    install()
    path = scratch.root / "root/etc/recover-and-bench/devices/200.json"
    assert install(state="absent", check=True)["written"] == [str(path)]
    assert path.exists()
    assert install(state="absent")["written"] == [str(path)]
    assert not path.exists()
    assert install(state="absent")["changed"] is False


def test_all_that_the_boot_program_imports_is_installed():
    """Followed from the program through every module of ours."""
    module = load(ROLE / "library/pve_lxc_boot_unit.py")
    installed = {code.__name__.rpartition(".")[2] for code in module.CODE}
    listing = "import sys; from pve_lxc import boot; print(*(m for m in sys.modules if m[:8] == 'pve_lxc.'))"
    path = str(ROLE / "module_utils")
    done = subprocess.run(
        [sys.executable, "-c", listing], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert {name.partition(".")[2] for name in done.stdout.split()} <= installed


@needs_root
def test_a_boot_with_a_moved_major_needs_no_repair(install, scratch):
    install()
    done = boot_now(scratch)
    assert done.returncode == 0, done.stderr
    assert scratch.conf.read_text() == REPAIRED
    assert (scratch.root / "dev/nvidia-uvm").is_char_device()
    assert "<6>container 200: allow major 511 (nvidia-uvm); drop line 6" in done.stderr
    again = boot_now(scratch)
    assert again.returncode == 0
    assert "<6>container 200: its file has all it needs" in again.stderr


@needs_root
def test_a_boot_loads_the_module_that_is_missing(install, scratch):
    scratch.put("devices", DEVICES.replace("511 nvidia-uvm\n", ""))
    scratch.put("bin/nvidia-modprobe", LOADS)
    (scratch.root / "bin/nvidia-modprobe").chmod(0o755)
    install()
    done = boot_now(scratch)
    assert "<6>loaded nvidia-uvm" in done.stderr
    assert scratch.conf.read_text() == REPAIRED


@needs_root
@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda s: s.conf.unlink(), "<4>container 200: left alone: {conf} does not exist"),
        (
            lambda s: s.conf.write_text(CONF.replace("hostname", "lock: backup\nhostname", 1)),
            "is locked (backup)",
        ),
        (lambda s: s.put("dev/nvidia-uvm", "x"), "<3>{dev}/nvidia-uvm is a regular file of 1 bytes"),
        (lambda s: s.put("root/etc/recover-and-bench/devices/200.json", "{"), "can't be read as settings"),
        (lambda s: s.put("devices", "Character devices:\n1 mem\n"), "couldn't be loaded"),
    ],
    ids=["no-container", "locked", "file-for-node", "settings", "no-driver"],
)
def test_what_goes_wrong_is_told_and_ends_at_once(install, scratch, break_it, said):
    scratch.put("bin/nvidia-modprobe", "#!/bin/sh\nexit 1\n")
    (scratch.root / "bin/nvidia-modprobe").chmod(0o755)
    install()
    break_it(scratch)
    done = boot_now(scratch)
    assert done.returncode == 1
    assert said.format(conf=scratch.conf, dev=scratch.root / "dev") in done.stderr
    assert "Traceback" not in done.stderr


def test_without_containers_there_is_nothing_to_do(tmp_path):
    assert boot.main(tmp_path) == 0


def test_newer_settings_are_refused(tmp_path):
    path = tmp_path / "200.json"
    path.write_text(json.dumps({"schema_version": 99}))
    with pytest.raises(boot.Refused, match="is of version 99; this is 1"):
        boot.read_settings(path)


def test_the_unit_passes_systemds_own_check(tmp_path):
    """With a program that is there: the verify looks for it."""
    path = tmp_path / "recover-and-bench-devices.service"
    path.write_text(UNIT.replace("/usr/local/lib/recover-and-bench/devices_at_boot.py", "/dev/null"))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if path.name in line] == []
