"""Each fault is made for real, named, and repaired by the same command; check mode says so before."""

import pytest
from story import CU_INIT, HOST, NODE, lab, on, right_sum, staged_sum

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def test_check_mode_shows_the_change_and_changes_nothing(healthy):
    lab("break", "uvm-rule-missing")
    before = on(HOST, "sha256sum /etc/pve/lxc/200.conf")

    check = healthy.run("recover-and-bench.yml", "--check", "--diff")

    assert check.status == 0
    assert "+lxc.cgroup2.devices.allow: c " in check.output
    assert on(HOST, "sha256sum /etc/pve/lxc/200.conf") == before
    assert on(NODE, CU_INIT).strip() == "999"


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("uvm-rule-missing", "uvm_major_not_allowed"),
        ("uvm-major-moved", "uvm_major_not_allowed"),
        ("device-node-missing", "host_node_missing"),
    ],
)
def test_a_broken_gpu_is_named_and_repaired(healthy, fault, cause):
    lab("break", fault)

    run = healthy.run()

    assert run.status == 0
    assert cause in {entry["name"] for entry in run.recovery["nodes"][NODE]["causes"]}
    assert on(NODE, CU_INIT).strip() == "0"


def test_a_truncated_model_is_found_and_staged_again(healthy):
    lab("break", "staged-model-truncated")

    run = healthy.run()

    assert run.status == 0
    assert run.recovery["changed"]
    assert staged_sum() == right_sum()


@pytest.fixture
def small_shm():
    """A /dev/shm that has become smaller than the model; as it was before, afterwards."""
    size = on(NODE, "df --output=size /dev/shm | tail -n 1").strip()
    lab("break", "shm-too-small")
    yield
    on(NODE, f"sed -i '/tmpfs .dev.shm/d' /etc/fstab && mount -o remount,size={size}k /dev/shm")


def test_memory_that_has_become_too_small_is_named(healthy, small_shm):
    run = healthy.run("playbooks/diagnose.yml", "-e", "gpu_probe_strict=true")

    assert run.status == 2
    assert "shm_too_small" in run.words
    assert "/dev/shm of ct200 holds 1.0 MiB; the model needs 3.2 MiB" in run.words
    assert "size=4M,create=dir" in run.words


def test_a_wrong_model_path_in_a_unit_is_put_right(healthy):
    lab("break", "engine-unit-model-path")

    run = healthy.run()

    assert run.status == 0
    assert "Deploy" in {line["stage"] for line in run.recovery["lines"]}
    assert run.recovery["changed"]
