"""What can't work is refused in one clear message, before anything was changed."""

import json
import re
import subprocess

import pytest
import yaml
from story import HOST, NODE, PROJECT, lab, lab_inventory, on

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

REFUSALS = {
    "Validate": "Refused: no machine was touched.",
    "Check": "Refused: nothing was changed on any machine.",
}


@pytest.fixture
def untouched(operator):
    """Fails the test when the machines were changed by a run that should have been refused."""

    def state():
        return (
            on(HOST, "sha256sum /etc/pve/lxc/200.conf /etc/passwd; ls -A /etc/systemd/system /opt /var/lib"),
            on(
                NODE,
                "ls -A /etc /etc/systemd/system /opt /dev/shm /var/lib /usr/local/lib;"
                "ls -A /var/tmp | grep -v ^systemd-private; sha256sum /etc/passwd /etc/group;"
                "cat /proc/sys/kernel/random/boot_id",
            ),
        )

    before = state()
    yield
    assert state() == before


@pytest.fixture
def inventory(operator, tmp_path):
    """The lab's own inventory as a file, spoiled by a test."""

    def write(spoil):
        return lab_inventory(tmp_path / "hosts.yml", spoil)

    return write


def refused(operator, *arguments, by, inventory=None):
    """The words of a run that has to end in the stage `by`, before anything was diagnosed or repaired."""
    run = operator.run("recover-and-bench.yml", *arguments, inventory=inventory)
    assert run.status != 0
    assert re.findall(r"^(\w+) · ", run.output, re.MULTILINE)[-1] == by
    assert run.recovery is None
    if by in REFUSALS:
        assert run.words.endswith(REFUSALS[by])
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
    path = inventory(lambda _, node: node.pop("pve_host"))

    assert "node ct200: pve_host is missing: name the Proxmox VE host it runs on" in refused(
        operator, inventory=path, by="Validate"
    )


def test_a_node_without_its_number(operator, inventory, untouched):
    path = inventory(lambda _, node: node.pop("vmid"))

    assert "node ct200: vmid is missing; the container's number from `pct list` is needed" in refused(
        operator, inventory=path, by="Validate"
    )


def test_a_host_that_does_not_answer(operator, inventory, untouched):
    path = inventory(lambda host, _: host.update(ansible_host="10.77.0.99"))

    words = refused(operator, "-e", "wait_limit_s=3", inventory=path, by="Wait")

    assert "pve (10.77.0.99) is not usable within 3 s" in words
    assert "nothing answers at 10.77.0.99: switched off, still booting, or no network" in words


def test_a_host_that_is_up_without_sshd(operator, inventory, untouched):
    path = inventory(lambda host, _: host.update(ansible_port=2222))

    assert "nothing listens on port 2222: sshd has not started" in refused(
        operator, "-e", "wait_limit_s=3", inventory=path, by="Wait"
    )


@pytest.fixture
def guest():
    """A user of the host who may not become root: sudo has no rule for them."""
    home = "/home/guest"
    on(HOST, f"useradd --create-home guest && cp -r /root/.ssh {home} && chown -R guest {home}/.ssh")
    yield "guest"
    # A connection that is kept open for the next task would keep the user.
    on(HOST, "pkill -u guest; userdel --force --remove guest")


def test_a_host_whose_sudo_refuses(operator, inventory, untouched, guest):
    path = inventory(lambda host, _: host.update(ansible_user=guest, ansible_become=True))

    words = refused(operator, inventory=path, by="Wait")

    assert "the login works but sudo refuses: allow it, or give the password with --ask-become-pass" in words


def test_an_unknown_workload(operator, untouched):
    plan = spoiled_plan(workloads={"cod": {"points": [1]}})

    words = refused(operator, "-e", json.dumps({"plan": plan}), by="Validate")

    assert "plan: workloads.cod: unknown key; did you mean 'code'?" in words


def test_a_results_folder_that_can_not_be_written(operator, untouched):
    words = refused(operator, "-e", "results_dir=/proc/results", by="Validate")

    assert "the results folder /proc/results can't be written" in words


@pytest.mark.parametrize("mode", [[], ["--check"]], ids=["run", "check mode"])
def test_an_unknown_flag(operator, untouched, mode):
    # The engine is not on the node yet: nothing but its launcher can know.
    assert "/opt/recover-and-bench" not in on(NODE, "find /opt -maxdepth 2")
    configurations = in_group_vars("configurations")
    configurations["tp1-ngram-mod"]["flags"]["spec-tipe"] = "ngram-mod"

    words = refused(operator, "-e", json.dumps({"configurations": configurations}), *mode, by="Check")

    assert (
        "ct200: configuration tp1-ngram-mod: --spec-tipe is unknown to this build"
        " (nearest known: --spec-type)" in words
    )


def test_a_value_that_a_flag_does_not_take(operator, untouched):
    configurations = in_group_vars("configurations")
    configurations["tp1-ngram-mod"]["flags"]["spec-type"] = "ngram-mot"

    words = refused(operator, "-e", json.dumps({"configurations": configurations}), by="Check")

    assert "configuration tp1-ngram-mod: --spec-type ngram-mot: not one of none, draft-simple" in words
    assert "; nearest: ngram-mod" in words


def test_an_engine_that_nobody_has_installed(operator, untouched):
    engines = {"llamacpp": {"template": "llamacpp", "venv": "/opt/nowhere", "requirements": None}}

    words = refused(operator, "-e", json.dumps({"engines": engines}), by="Check")

    assert "ct200: engine llamacpp is not installed: there is no /opt/nowhere/bin/python" in words


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"sources": [{"kind": "hf_cache", "path": "/var/lib/models/nowhere"}]},
            "there is no folder /var/lib/models/nowhere",
        ),
        ({"repo": "lab/tiny-qwen3"}, "has no models--lab--tiny-qwen3 (it has models--lab--tiny-qwen2)"),
        ({"revision": "v2"}, "has no revision 'v2' (it has main, "),
    ],
    ids=["no source", "no such model", "no such revision"],
)
def test_a_model_that_does_not_exist(operator, untouched, change, said):
    models = {"tiny-qwen2": {**in_group_vars("models")["tiny-qwen2"], **change}}

    words = refused(operator, "-e", json.dumps({"models": models}), by="Check")

    assert "tiny-qwen2: " in words
    assert said in words


def test_a_model_that_does_not_fit(operator, untouched):
    words = refused(operator, "-e", "model_stage_reserve_bytes=900000000000000", by="Check")

    assert "tiny-qwen2: " in words
    assert "the model needs 3.4 MB in /dev/shm and 900000.0 GB are reserved for the engine" in words


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("/proc/bench", "can't be written: /proc takes no file (No such file or directory)"),
        ("/dev/shm/bench", "is on the tmpfs /dev/shm, which a reboot empties"),
    ],
)
def test_a_folder_on_the_node_that_can_not_keep_results(operator, untouched, folder, said):
    words = refused(operator, "-e", f"bench_run_dir={folder}", by="Check")

    assert f"ct200: the results folder {folder} {said}" in words
    assert "name another folder (bench_run_dir)" in words


def test_a_node_that_is_off_is_left_to_the_repair(operator):
    lab("break", "container-stopped")

    run = operator.run("playbooks/check.yml", "-e", "bench_run_dir=/proc/bench")
    # The story, in the next file, begins with the node up; `up` starts no stopped container.
    lab("reboot-host", HOST)

    assert run.status == 0
    assert "ct200 left out here: nothing answers at 10.77.0.20" in run.words


def in_group_vars(name):
    """A variable of the lab, to be spoiled."""
    text = (PROJECT / f"group_vars/lab/{name}.yml").read_text().replace("{{ lab_model }}", "tiny-qwen2")
    return yaml.safe_load(text)[name]


def spoiled_plan(**changes):
    return {**in_group_vars("plans")["lab-small"], **changes}
