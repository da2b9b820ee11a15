"""Each fault is what it says: seen by what opens, by CUDA, and by the host."""

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("fault", "uvm", "cu_init"),
    [
        ("snapshot-only-rule", "EPERM", 999),
        ("ignored-line", "EPERM", 999),
        ("stale-rule", "EPERM", 999),
        # A bind mount of what is no device is a regular file, which root may open.
        ("regular-file-for-node", "opens", 999),
        ("driver-updated", "opens", 803),
        pytest.param("driver-not-built", "opens", 100, marks=pytest.mark.long),
        pytest.param("v1-rule", "EPERM", 999, marks=pytest.mark.long),
        pytest.param("uvm-rule-missing", "EPERM", 999, marks=pytest.mark.long),
        pytest.param("uvm-major-moved", "EPERM", 999, marks=pytest.mark.long),
        pytest.param("device-node-missing", "opens", 999, marks=pytest.mark.long),
    ],
)
def test_a_fault_is_real(healthy, fault, uvm, cu_init):
    healthy.lab(f"break {fault}")

    found = healthy.probe()

    assert (found["uvm"], found["cuInit"]) == (uvm, cu_init)


def test_a_lost_gpu_is_gone_from_all_places(healthy):
    healthy.lab("break gpu-missing")

    assert healthy.probe()["gpus"] == 1
    assert healthy.on("pve", "ls /sys/bus/pci/devices /dev/nvidia[0-9]").split() == [
        "/dev/nvidia0",
        "/sys/bus/pci/devices:",
        "0000:41:00.0",
    ]


def test_a_module_that_is_not_loaded_comes_with_nvidia_modprobe(healthy):
    healthy.lab("break module-not-loaded")
    assert "nvidia-uvm" not in healthy.on("pve", "cat /proc/devices")
    assert healthy.probe()["cuInit"] == 999

    healthy.on("pve", "nvidia-modprobe -u -c 0; pct reboot 200")
    healthy.wait_for("ct200")

    assert healthy.probe()["cuInit"] == 0


@pytest.mark.parametrize("fault", ["node-sshd-down", "node-network-down"])
def test_a_node_that_cannot_be_reached_is_still_there_for_its_host(healthy, fault):
    healthy.lab(f"break {fault}")

    assert "ct200    10.77.0.20   running, silent" in healthy.lab("status")
    assert healthy.on("pve", "pct exec 200 -- cat /etc/hostname") == "ct200"


def test_a_container_that_does_not_start_is_named_and_not_waited_for(fresh):
    fresh.lab("break devn-missing-node")

    assert "ct200 is not running (status: stopped)" in fresh.lab("reboot-host pve 2>&1")


def test_a_small_shm_stays_small(healthy):
    healthy.lab("break shm-too-small")
    healthy.on("pve", "pct reboot 200")
    healthy.wait_for("ct200")

    assert healthy.on("ct200", "df --output=size -B1M /dev/shm | tail -n 1").strip() == "1"
