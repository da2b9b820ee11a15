"""pve_lxc_devices in pairs: check mode predicts, the run agrees, a second run changes nothing."""

import fcntl
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pve_lxc_scratch import CONF, DEVICES, REPAIRED


def devices(run, scratch, **more):
    arguments = {"vmid": 200, "pve_version": "9.1.1", **scratch.places, **more}
    before = scratch.snapshot()
    predicted = run("pve_lxc_devices", check=True, **arguments)
    assert scratch.snapshot() == before
    done = run("pve_lxc_devices", **arguments)
    for key in ("changed", "config_changed", "changes", "diff", "live_rules", "deferred", "failed", "msg"):
        assert predicted.get(key) == done.get(key)
    if not done.get("failed"):
        again = run("pve_lxc_devices", **arguments)
        assert (again["changed"], again["config_changed"]) == (False, False)
    return done


@pytest.fixture
def _nodes(scratch):
    for name, minor in (("nvidia0", 0), ("nvidiactl", 255)):
        scratch.make_node(name, 195, minor)
    for name, minor in (("nvidia-uvm", 0), ("nvidia-uvm-tools", 1)):
        scratch.make_node(name, 511, minor)


@pytest.mark.usefixtures("_nodes")
def test_the_file_gets_what_it_lacks_and_loses_what_is_stale(run, scratch):
    done = devices(run, scratch)
    assert scratch.conf.read_text() == REPAIRED
    assert done["diff"] == {
        "before": CONF,
        "after": REPAIRED,
        "before_header": str(scratch.conf),
        "after_header": str(scratch.conf),
    }
    assert done["mode"] == "rules"
    assert done["live_rules"] == ["c 195:* rwm", "c 511:* rwm"]
    assert (scratch.root / "backups/200").is_dir()
    records = json.loads((scratch.root / "majors.json").read_text())
    assert records["majors"] == {"195": ["nvidia", "nvidiactl"], "511": ["nvidia-uvm"]}
    assert [path.name for path in scratch.conf.parent.iterdir()] == ["200.conf"]
    step = done["recovery"]["steps"][0]
    assert (step["step"], step["changed"]) == ("fix_config", True)
    assert step["before"] != step["after"]


@pytest.mark.usefixtures("_nodes")
def test_a_record_alone_is_a_change_of_the_host_but_not_of_the_file(run, scratch):
    scratch.conf.write_text(REPAIRED)
    done = devices(run, scratch)
    assert (done["changed"], done["config_changed"]) == (True, False)


@pytest.mark.usefixtures("_nodes")
def test_restored_undoes_the_change_and_then_changes_nothing(run, scratch):
    devices(run, scratch)
    done = devices(run, scratch, state="restored")
    assert done["config_changed"]
    assert scratch.conf.read_text() == CONF


@pytest.mark.usefixtures("_nodes")
def test_restored_over_a_later_change_is_refused(run, scratch):
    devices(run, scratch)
    scratch.conf.write_text(REPAIRED + "tags: x\n")
    done = devices(run, scratch, state="restored")
    assert "was changed since our own change" in done["msg"]
    assert scratch.conf.read_text() == REPAIRED + "tags: x\n"
    assert run("pve_lxc_devices", vmid=200, state="restored", force=True, **scratch.places)["changed"]


@pytest.mark.usefixtures("_nodes")
@pytest.mark.parametrize(
    ("hot_plug", "version", "deferred"),
    [(True, "9.1.1", True), (True, "8.4.1", False), (False, "9.1.1", False)],
)
def test_new_devn_entries_are_left_to_a_hot_plug_where_that_works(run, scratch, hot_plug, version, deferred):
    scratch.conf.write_text("arch: amd64\nhostname: ct200\n")
    arguments = {
        "vmid": 200,
        "grant": "devices",
        "hot_plug": hot_plug,
        "pve_version": version,
        **scratch.places,
    }
    done = run("pve_lxc_devices", **arguments)
    assert bool(done["deferred"]) is deferred
    assert done["config_changed"] is not deferred
    assert ("dev0" in scratch.conf.read_text()) is not deferred


@pytest.mark.usefixtures("_nodes")
def test_no_hot_plug_where_proxmoxs_own_write_would_lose_a_line(run, scratch):
    scratch.conf.write_text("arch: amd64\n lxc.tty.max: 1\n")
    done = run(
        "pve_lxc_devices", vmid=200, grant="devices", hot_plug=True, pve_version="9.1", **scratch.places
    )
    assert done["deferred"] == {}
    assert " lxc.tty.max: 1\n" in scratch.conf.read_text()


@pytest.mark.usefixtures("_nodes")
def test_bytes_that_are_no_text_survive(run, scratch):
    scratch.conf.write_bytes(CONF.encode().replace(b"#GPUs", b"#\xff\xfeGPUs"))
    devices(run, scratch)
    assert scratch.conf.read_bytes() == REPAIRED.encode().replace(b"#GPUs", b"#\xff\xfeGPUs")


def test_another_digest_than_the_asked_one_is_refused(run, scratch):
    done = devices(run, scratch, digest="0" * 40)
    assert "was changed meanwhile by something else" in done["msg"]
    assert scratch.conf.read_text() == CONF


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lock: backup\n", "the container is locked (backup)"),
        ("template: 1\n", "it is a template"),
    ],
)
def test_containers_to_leave_alone(run, scratch, line, message):
    scratch.conf.write_text(CONF.replace("arch: amd64\n", f"arch: amd64\n{line}", 1))
    before = scratch.conf.read_text()
    done = devices(run, scratch)
    assert done["msg"].startswith(f"{scratch.conf}: ")
    assert message in done["msg"]
    assert scratch.conf.read_text() == before


def test_an_emptied_file_is_refused(run, scratch):
    scratch.conf.write_text("")
    assert "has it been emptied?" in devices(run, scratch)["msg"]


def test_drivers_that_are_not_loaded_are_refused_and_in_check_mode_awaited(run, scratch):
    scratch.put("devices", DEVICES.replace("511 nvidia-uvm\n", ""))
    assert "load it first" in devices(run, scratch)["msg"]
    told = run("pve_lxc_devices", check=True, vmid=200, drivers_pending=True, **scratch.places)
    assert told["changed"] is False
    assert "can be told only after the drivers are loaded" in told["progress"]


def test_a_missing_proc_devices_is_named(run, scratch):
    (scratch.root / "devices").unlink()
    assert "devices can't be read: No such file" in devices(run, scratch)["msg"]


def test_a_held_lock_is_waited_for_and_named(run, scratch):
    (scratch.root / "lock").mkdir()
    with (scratch.root / "lock/pve-config-200.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        done = run("pve_lxc_devices", vmid=200, lock_limit_s=0.1, **scratch.places)
    assert "pve-config-200.lock was held by another process for 0.1 s" in done["msg"]
    assert scratch.conf.read_text() == CONF
