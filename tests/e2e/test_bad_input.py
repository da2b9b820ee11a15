"""What can't work is refused in one clear message, before anything was changed."""

import subprocess

import pytest
import yaml
from story import HOST, NODE, PROJECT, lab, on

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture
def untouched():
    """Fails the test when the machines were changed by a run that should have been refused."""

    def state():
        return (
            on(HOST, "sha256sum /etc/pve/lxc/200.conf; ls /etc/systemd/system"),
            on(NODE, "ls /etc/systemd/system /opt /dev/shm /var/lib; cat /proc/sys/kernel/random/boot_id"),
        )

    before = state()
    yield
    assert state() == before


@pytest.fixture
def inventory(tmp_path):
    """The lab's own inventory as a file that a test can spoil."""

    def write(spoil):
        described = yaml.safe_load(lab("inventory", "--yaml"))
        spoil(described)
        path = tmp_path / "hosts.yml"
        path.write_text(yaml.safe_dump(described))
        (tmp_path / "group_vars").symlink_to(PROJECT / "group_vars")
        return path

    return write


def refused(operator, *arguments, playbook="recover-and-bench.yml"):
    run = operator.run(playbook, *arguments)
    assert run.status != 0
    return run.words


def test_the_unedited_example(operator, untouched):
    done = subprocess.run(
        ["ansible-playbook", "recover-and-bench.yml"],
        cwd=PROJECT,
        env=operator.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    assert "is still the example: put your own host and node in it" in " ".join(done.stdout.split())


def test_an_unknown_workload(operator, untouched):
    words = refused(operator, "-e", '{"plan": {"schema_version": 1, "name": "x", "workloads": {"cod": {}}}}')
    assert "cod" in words
    assert "code" in words


def test_a_results_folder_that_can_not_be_written(operator, untouched):
    words = refused(operator, "-e", "results_dir=/proc/results")
    assert "the results folder /proc/results can't be written" in words


def test_a_host_that_does_not_answer(operator, untouched):
    words = refused(
        operator, "-e", '{"ansible_host": "10.77.0.99", "wait_limit_s": 2}', "--limit", "pve,localhost"
    )
    assert "nothing answers at 10.77.0.99: switched off, still booting, or no network" in words
