"""pve_lxc_container on a stand-in `pct`: status decides, refusals name whom a restart would hurt."""

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pve_lxc_scratch import CONF, REPAIRED


def container(run, scratch, state, *, check=False, **more):
    places = {name: scratch.places[name] for name in ("conf_dir", "lock_dir", "backup_dir", "dev_dir")}
    ha = str(scratch.root / "resources.cfg")
    limits = {"start_s": 2, "shutdown_s": 2}
    return run(
        "pve_lxc_container", check=check, vmid=200, state=state, ha_resources=ha, **places, **limits, **more
    )


@pytest.fixture
def running(scratch):
    scratch.put("state", "running")
    return scratch


def changing(calls):
    return [call for call in calls if call.split()[0] not in ("status", "exec")]


@pytest.mark.parametrize("state", ["started", "restarted"])
def test_a_stopped_container_is_started(run, scratch, state):
    predicted = container(run, scratch, state, check=True)
    assert changing(scratch.calls()) == []
    done = container(run, scratch, state)
    assert (predicted["changed"], predicted["diff"]) == (done["changed"], done["diff"])
    assert (done["before"], done["after"], done["changed"]) == ("stopped", "running", True)
    assert changing(scratch.calls()) == ["start 200"]
    assert done["waited_s"]["boot"] >= 0
    again = container(run, scratch, "started")
    assert (again["changed"], again["progress"]) == (False, "start_container: it runs already")


def test_a_restart_stops_and_starts_with_consent(run, running):
    predicted = container(run, running, "restarted", allowed=True, check=True)
    assert changing(running.calls()) == []
    done = container(run, running, "restarted", allowed=True)
    assert predicted["changed"] is done["changed"] is True
    assert predicted["diff"] == done["diff"] == {"before": "running\n", "after": "running again\n"}
    assert changing(running.calls()) == ["shutdown 200 --timeout 2 --forceStop 1", "start 200"]
    assert done["recovery"]["steps"][0]["step"] == "restart_container"


@pytest.mark.parametrize("check", [True, False])
def test_a_restart_without_consent_names_the_variable(run, running, check):
    done = container(run, running, "restarted", check=check)
    assert done["refused"]
    assert "set pve_lxc_restart_allowed: true" in done["msg"]
    assert changing(running.calls()) == []


def test_a_refused_restart_says_that_the_file_is_repaired(run, running):
    done = container(run, running, "restarted", undo_config=True)
    assert done["msg"].endswith("Its file is repaired already and counts from its next start on")


def test_a_running_campaign_stands_against_a_restart(run, running):
    running.put("units", "bench-run-lab-small.service loaded active running Campaign lab-small\n")
    done = container(run, running, "restarted", allowed=True)
    assert "would end this: the campaign bench-run-lab-small.service in container 200" in done["msg"]
    assert "set pve_lxc_force: true" in done["msg"]
    assert changing(running.calls()) == []
    assert container(run, running, "restarted", allowed=True, force=True)["changed"]


@pytest.mark.parametrize("state", ["started", "restarted"])
def test_a_proxmox_lock_is_never_overridden(run, scratch, state):
    scratch.conf.write_text(CONF.replace("hostname", "lock: backup\nhostname", 1))
    done = container(run, scratch, state, allowed=True, force=True)
    assert "container 200 is locked (backup)" in done["msg"]
    assert changing(scratch.calls()) == []


def test_a_shutdown_that_fails_is_told_with_pcts_words(run, running):
    running.put("stuck", "")
    done = container(run, running, "restarted", allowed=True)
    assert "container 200 is running, not stopped. `pct shutdown 200" in done["msg"]
    assert "CT is locked (snapshot)" in done["msg"]


def make_unstartable(scratch, text):
    """A container that doesn't start with this content of its file."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    scratch.put("unstartable", f"{digest}  -\n")


def test_a_start_that_fails_says_how_it_was_and_is(run, running):
    make_unstartable(running, CONF)
    done = container(run, running, "restarted", allowed=True)
    assert "startup for container '200' failed" in done["msg"]
    assert done["msg"].endswith("it was running before and is stopped now")


def test_a_start_that_fails_with_our_change_goes_back_to_how_it_was(run, running):
    arguments = {**running.places, "vmid": 200}
    assert run("pve_lxc_devices", **arguments)["config_changed"]
    assert running.conf.read_text() == REPAIRED
    make_unstartable(running, REPAIRED)
    done = container(run, running, "restarted", allowed=True, undo_config=True)
    assert "its file is again as it was found; it was running before and is running now" in done["msg"]
    assert running.conf.read_text() == CONF
    assert (running.root / "state").read_text() == "running\n"


def test_an_init_that_never_comes_up_is_told(run, scratch):
    scratch.put("init", "offline")
    done = container(run, scratch, "started")
    assert "container 200 runs, but its init is not up after 2 s" in done["msg"]


@pytest.mark.parametrize("init", ["degraded", "starting"])
def test_a_slow_or_failed_unit_is_no_broken_container(run, scratch, init):
    scratch.put("init", init)
    assert container(run, scratch, "started")["after"] == "running"


def test_a_pct_that_prints_no_status_is_told(run, scratch):
    scratch.put("no-status", "")
    assert (
        "`pct status 200` printed no status (it ended with 255)" in container(run, scratch, "started")["msg"]
    )


def test_under_high_availability_the_status_is_awaited(run, scratch):
    """The command only requests; here the request is refused and another hand starts the container later."""
    scratch.put("resources.cfg", "vm: 100\n\nct: 200\n\tstate started\n")
    make_unstartable(scratch, CONF)
    with subprocess.Popen(["sh", "-c", 'sleep 0.7; echo running >"$SCRATCH/state"']):
        done = container(run, scratch, "started")
    assert done["after"] == "running"


def test_running_waits_for_a_container_that_something_else_starts(run, running):
    done = container(run, running, "running", spent_s=5)
    assert done["waited_s"]["boot"] >= 5
    assert done["recovery"]["steps"][0]["seconds"] >= 5


def test_running_ends_when_nothing_starts_it(run, scratch):
    assert "is stopped, not running, after 2 s" in container(run, scratch, "running")["msg"]


# Hot-plug


@pytest.fixture
def plug(scratch):
    def make(code):
        scratch.put("bin/lxc-cgroup", f'#!/bin/sh\necho "lxc-cgroup $*" >>"$SCRATCH/pct.log"\nexit {code}\n')
        (scratch.root / "bin/lxc-cgroup").chmod(0o755)

    return make


@pytest.mark.usefixtures("running")
def test_rules_and_devices_are_plugged_in_while_it_runs(run, scratch, plug):
    plug(0)
    what = {"rules": ["c 511:* rwm"], "devices": {"dev0": "/dev/nvidia0,mode=0666"}}
    assert container(run, scratch, "hot_plugged", check=True, **what)["changed"]
    assert changing(scratch.calls()) == []
    assert container(run, scratch, "hot_plugged", **what)["changed"]
    assert changing(scratch.calls()) == [
        "lxc-cgroup -n 200 devices.allow c 511:* rwm",
        "set 200 --dev0 /dev/nvidia0,mode=0666",
    ]


@pytest.mark.usefixtures("running")
def test_a_hot_plug_that_fails_leaves_it_to_the_restart(run, scratch, plug):
    plug(1)
    done = container(run, scratch, "hot_plugged", rules=["c 511:* rwm"])
    assert (done["changed"], done.get("failed")) == (False, None)
    assert "it can't be changed while it runs" in done["progress"]


@pytest.mark.parametrize(("state", "rules"), [("stopped", ["c 511:* rwm"]), ("running", [])])
def test_there_is_not_always_something_to_plug_in(run, scratch, state, rules):
    scratch.put("state", state)
    done = container(run, scratch, "hot_plugged", rules=rules)
    assert (done["changed"], done["progress"]) == (False, "hot_plug: nothing to plug in")


# A reboot of the host


def test_a_reboot_needs_its_own_consent(run, running):
    done = container(run, running, "host_idle")
    assert "set pve_lxc_host_reboot_allowed: true" in done["msg"]


def test_a_reboot_looks_into_every_container(run, running):
    (running.root / "lxc/201.conf").write_text(CONF)
    running.put("units", "bench-run-x.service loaded active running X\n")
    done = container(run, running, "host_idle", allowed=True)
    assert "the campaign bench-run-x.service in container 200" in done["msg"]
    assert "the campaign bench-run-x.service in container 201" in done["msg"]


@contextlib.contextmanager
def holder(path):
    with path.open("rb") as file, subprocess.Popen(["sleep", "30"], stdin=file) as process:
        yield process
        process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="a device node needs root")
def test_processes_on_the_gpus_are_named(run, running):
    """The device of /dev/full plays the GPU."""
    running.make_node("nvidia0", 1, 7)
    with holder(Path("/dev/full")) as process:
        done = container(run, running, "host_idle", allowed=True)
    assert f"sleep (pid {process.pid}, user root, the host" in done["msg"]
