"""The story with NVIDIA's own numbers, on a kernel that really has them: 195 and 511, then 508, then 507.

The tests are one story: each goes on where the one before it ended.
"""

import json
import re
import subprocess
import sys
import time

import pytest
from story import CU_INIT, HOST, NODE, PROJECT, Operator, on

from tests.lab import fleet
from tests.lab.vm import machine

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1800)]

MIB = 1 << 20
OPEN_UVM = """python3 -c '
import errno, os
try:
    os.close(os.open("/dev/nvidia-uvm", os.O_RDWR))
    print("opens")
except OSError as exc:
    print(errno.errorcode[exc.errno])
'"""


def vm(*words):
    """Run a verb of the VM's own tool; the seconds that it says it took."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab.vm", *words],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = re.search(r"\(([\d.]+) s\)", done.stdout)
    return float(seconds[1]) if seconds else None


class Timed(Operator):
    """An operator with a watch."""

    def play(self, playbook, *arguments):
        started = time.monotonic()
        run = self.run(f"playbooks/{playbook}.yml", *arguments, timeout_s=900)
        run.seconds = round(time.monotonic() - started, 1)
        return run

    def diagnosis(self):
        (node,) = json.loads((self.results / "diagnosis.json").read_text())["nodes"]
        return node


@pytest.fixture(scope="module")
def operator(_room, tmp_path_factory):
    vm("down")
    operator = Timed(tmp_path_factory.mktemp("operator") / "results")
    operator.boot_s = vm("up")
    yield operator
    vm("down")


def names(diagnosis):
    return {cause["name"] for cause in diagnosis["causes"] if cause["severity"] != "note"}


def devices():
    """NVIDIA's lines of the kernel's /proc/devices, which nothing covers."""
    assert "/proc/devices" not in on(HOST, "cat /proc/mounts")
    return re.findall(r"^ *(\d+) (nvidia\S*)$", on(HOST, "cat /proc/devices"), re.MULTILINE)


def allowed():
    text = on(HOST, "cat /etc/pve/lxc/200.conf")
    return re.findall(r"^lxc\.cgroup2\.devices\.allow: c (\d+):\* rwm$", text, re.MULTILINE)


def cuda():
    return on(NODE, CU_INIT).strip()


def test_the_kernel_has_the_numbers_and_denies_511(operator, figure):
    figure("boot, s", operator.boot_s)
    assert devices() == [
        ("195", "nvidia"),
        ("195", "nvidia-modeset"),
        ("195", "nvidiactl"),
        ("511", "nvidia-uvm"),
    ]
    assert allowed() == ["195", "509", "226", "234"]
    assert on(NODE, OPEN_UVM).strip() == "EPERM"
    assert cuda() == "999"


def test_the_diagnosis_names_511(operator, figure):
    run = operator.play("diagnose")
    figure("diagnose, s", run.seconds)

    assert run.status == 0
    found = operator.diagnosis()
    assert found["verdict"] == "repairable"
    assert "uvm_major_not_allowed" in names(found)
    assert any("511" in cause["sentence"] for cause in found["causes"])
    assert allowed() == ["195", "509", "226", "234"]


def test_the_repair_lets_511_in(operator, figure):
    run = operator.play("recover")
    figure("repair, s", run.seconds)

    assert run.status == 0
    # 509 and 234 belong to no driver of this kernel; 226 is the graphics devices', and not ours.
    assert sorted(allowed()) == ["195", "226", "511"]
    assert on(NODE, OPEN_UVM).strip() == "opens"
    assert cuda() == "0"


def test_a_second_repair_changes_nothing(operator, figure):
    run = operator.play("recover")
    figure("nothing to repair, s", run.seconds)

    assert run.status == 0
    assert run.recovery["changed"] == {}


def test_after_a_reboot_it_is_508_and_is_repaired_again(operator, figure):
    figure("host reboot, s", vm("reboot", "--uvm-major", "508"))
    assert ("508", "nvidia-uvm") in devices()
    assert cuda() == "999"

    run = operator.play("recover", "-e", "pve_lxc_boot_unit_enabled=true")
    figure("repair and boot unit, s", run.seconds)

    assert run.status == 0
    assert "uvm_major_not_allowed" in {cause["name"] for cause in run.recovery["nodes"][NODE]["causes"]}
    assert "508" in allowed()
    assert cuda() == "0"


def test_with_the_boot_unit_the_next_reboot_needs_no_repair(operator, figure):
    figure("host reboot with the boot unit, s", vm("reboot", "--uvm-major", "507"))

    assert ("507", "nvidia-uvm") in devices()
    assert "507" in allowed()
    assert cuda() == "0"
    run = operator.play("recover", "-e", "pve_lxc_boot_unit_enabled=true")
    assert run.status == 0
    assert run.recovery["changed"] == {}


@pytest.fixture
def small(operator):
    """The container with 512 MiB of memory, which the kernel holds it to."""
    restart_with(512)
    yield
    restart_with(8192)


def restart_with(mib):
    on(HOST, f"pct set 200 --memory {mib} && pct reboot 200")
    (host,) = fleet.make_fleet().hosts
    machine.wait_for(host, NODE)


def test_a_memory_limit_below_the_model_is_named(operator, small):
    run = operator.play("diagnose", "-e", f"gpu_probe_model_bytes={600 * MIB}")

    assert run.status == 0
    found = operator.diagnosis()
    assert found["verdict"] == "needs_person"
    assert names(found) == {"memory_limit_below_model"}
    (cause,) = [cause for cause in found["causes"] if cause["name"] == "memory_limit_below_model"]
    assert cause["proof"]["limits"]["live limit"] == 512 * MIB
    assert "pct set 200 --memory" in cause["sentence"]


def test_files_in_dev_shm_count_against_the_limit(operator, small):
    """Why the cause above is one: /dev/shm says that it has room, and the kernel kills the writer."""
    group = "/sys/fs/cgroup/lxc/200"
    assert int(on(NODE, "df --output=avail -B1 /dev/shm | tail -n 1")) > 600 * MIB
    before = int(on(HOST, f"cat {group}/memory.current"))

    on(NODE, "head -c 200M /dev/zero > /dev/shm/part")

    assert int(on(HOST, f"cat {group}/memory.current")) - before > 190 * MIB
    # It is to be the one that is killed, and not sshd.
    killed = on(
        NODE, "(echo 1000 > /proc/self/oom_score_adj; exec head -c 600M /dev/zero) > /dev/shm/model; echo $?"
    )
    assert killed.strip() == "137"
    events = dict(line.split() for line in on(HOST, f"cat {group}/memory.events").splitlines())
    assert int(events["oom_kill"]) > 0
