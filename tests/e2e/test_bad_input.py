"""What can't work is refused in one clear message, before anything was changed."""

import json
import subprocess

import pytest
import yaml
from story import HOST, NODE, PROJECT, lab, on

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture
def untouched(operator):
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
def inventory(operator, tmp_path):
    """The lab's own inventory as a file, spoiled by a test."""

    def write(spoil):
        described = json.loads(lab("inventory"))
        variables = described["_meta"]["hostvars"]
        groups = {
            group: {"hosts": {name: variables.get(name, {}) for name in described[group]["hosts"]}}
            for group in ("pve_hosts", "nodes")
        }
        spoil(groups["pve_hosts"]["hosts"][HOST], groups["nodes"]["hosts"][NODE])
        path = tmp_path / "hosts.yml"
        path.write_text(yaml.safe_dump({"lab": {"children": groups}}))
        return path

    return write


def refused(operator, *arguments, inventory=None):
    run = operator.run("recover-and-bench.yml", *arguments, inventory=inventory)
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


def test_a_node_without_its_host(operator, inventory, untouched):
    path = inventory(lambda host, node: node.pop("pve_host"))

    assert "node ct200: pve_host is missing: name the Proxmox VE host it runs on" in refused(
        operator, inventory=path
    )


def test_a_node_without_its_number(operator, inventory, untouched):
    path = inventory(lambda host, node: node.pop("vmid"))

    assert "node ct200: vmid is missing; the container's number from `pct list` is needed" in refused(
        operator, inventory=path
    )


def test_a_host_that_does_not_answer(operator, inventory, untouched):
    path = inventory(lambda host, node: host.update(ansible_host="10.77.0.99"))

    words = refused(operator, "-e", "wait_limit_s=3", inventory=path)

    assert "pve (10.77.0.99) is not usable within 3 s" in words
    assert "nothing answers at 10.77.0.99: switched off, still booting, or no network" in words


def test_a_host_that_is_up_without_sshd(operator, inventory, untouched):
    path = inventory(lambda host, node: host.update(ansible_port=2222))

    assert "nothing listens on port 2222: sshd has not started" in refused(
        operator, "-e", "wait_limit_s=3", inventory=path
    )


def test_a_host_whose_sudo_refuses(operator, inventory, untouched):
    # nobody may become root on the host: sudo has no rule for that user.
    on(
        HOST,
        "useradd --create-home guest && cp -r /root/.ssh /home/guest/ && chown -R guest /home/guest/.ssh",
    )
    path = inventory(lambda host, node: host.update(ansible_user="guest", ansible_become=True))

    words = refused(operator, inventory=path)
    on(HOST, "userdel --remove guest")

    assert "the login works but sudo refuses: allow it, or give the password with --ask-become-pass" in words


def test_an_unknown_workload(operator, untouched):
    words = refused(operator, "-e", json.dumps({"plan": spoiled_plan(workloads={"cod": {"points": [1]}})}))

    assert "plan: workloads.cod: unknown key; did you mean 'code'?" in words


def test_an_unknown_flag(operator, untouched):
    configurations = yaml.safe_load((PROJECT / "group_vars/lab/configurations.yml").read_text())[
        "configurations"
    ]
    configurations["tp1-ngram-mod"]["flags"]["spec-tipe"] = "ngram-mod"

    words = refused(operator, "-e", json.dumps({"configurations": configurations}))

    assert "tp1-ngram-mod" in words
    assert "spec-tipe" in words
    assert "spec-type" in words


def test_a_model_that_has_no_source(operator, untouched):
    sources = [{"kind": "hf_cache", "path": "/var/lib/models/nowhere"}]
    models = {"tiny-qwen2": {"repo": "lab/tiny-qwen2", "revision": "main", "sources": sources}}

    words = refused(operator, "-e", json.dumps({"models": models}))

    assert "tiny-qwen2" in words
    assert "/var/lib/models/nowhere" in words


def test_a_results_folder_that_can_not_be_written(operator, untouched):
    words = refused(operator, "-e", "results_dir=/proc/results")

    assert "the results folder /proc/results can't be written" in words


def test_a_folder_for_results_on_the_node_that_can_not_be_written(operator, untouched):
    words = refused(operator, "-e", "bench_run_dir=/proc/bench")

    assert "/proc/bench" in words


def spoiled_plan(**changes):
    plan = yaml.safe_load((PROJECT / "group_vars/lab/plan.yml").read_text())["plan"]
    return {**plan, **changes}
