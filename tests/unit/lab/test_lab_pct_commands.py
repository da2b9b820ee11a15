"""pct's words, exit codes and locks, as far as they need no running container."""

import fcntl

import pytest

from tests.lab.pct import cli, containers, locks
from tests.lab.pct.conf import Section
from tests.lab.pct.errors import PctError

CONF = (
    "#old\narch: amd64\nmemory: 512\n bad: line\nhostname: ct200\n# note\n"
    "lxc.cgroup2.devices.allow: c 7:* rwm\n"
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A host with one stopped container, 200."""
    monkeypatch.setattr(locks, "FOLDER", tmp_path / "lock")
    monkeypatch.setattr(containers, "state", lambda _vmid: "stopped")
    place = containers.Place("pve", tmp_path)
    monkeypatch.setattr(containers, "default_place", lambda: place)
    place.path(200).write_text(CONF)
    return place


def test_set_rewrites_the_whole_file_and_drops_bad_lines(place, capsys):
    assert cli.main(["set", "200", "--cores", "4", "-onboot=1"]) == 0

    assert place.path(200).read_text() == (
        "#old\n# note\narch: amd64\ncores: 4\nhostname: ct200\nmemory: 512\nonboot: 1\n"
        "lxc.cgroup2.devices.allow: c 7:* rwm\n"
    )
    assert "unable to parse config:  bad: line" in capsys.readouterr().err


def test_set_deletes_what_is_named(place):
    assert cli.main(["set", "200", "--delete", "memory,hostname"]) == 0

    assert "memory" not in place.path(200).read_text()


def test_raw_entries_have_no_option(place, capsys):
    assert cli.main(["set", "200", "--lxc.cgroup2.devices.allow", "c 203:* rwm"]) == 255

    assert "Unknown option: lxc.cgroup2.devices.allow" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["start", "status", "config", "stop"])
def test_an_unknown_container_is_named_by_its_file(place, capsys, verb):
    assert cli.main([verb, "999"]) == 2

    assert capsys.readouterr().err == "Configuration file 'nodes/pve/lxc/999.conf' does not exist\n"


def test_stopping_what_is_stopped_is_an_error(place, capsys):
    assert cli.main(["stop", "200"]) == 255

    assert capsys.readouterr().err == "CT 200 not running\n"


@pytest.mark.parametrize("verb", ["start", "stop", "shutdown", "reboot", "set"])
def test_a_locked_container_is_left_alone_until_unlocked(place, capsys, verb):
    place.path(200).write_text(f"{CONF}lock: backup\n")

    assert cli.main([verb, "200"]) == 255
    assert "CT is locked (backup)" in capsys.readouterr().err

    assert cli.main(["unlock", "200"]) == 0
    assert "lock:" not in place.path(200).read_text()


def test_a_template_is_not_started(place, capsys):
    place.path(200).write_text("arch: amd64\ntemplate: 1\n")

    assert cli.main(["start", "200"]) == 255

    assert "template" in capsys.readouterr().err


def test_status_and_list(place, capsys):
    cli.main(["status", "200"])
    assert capsys.readouterr().out == "status: stopped\n"

    cli.main(["list"])
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["VMID", "Status", "Lock", "Name"]
    assert line.split() == ["200", "stopped", "ct200"]


def test_the_config_lock_gives_up_with_proxmox_words(place, tmp_path):
    (tmp_path / "lock").mkdir()
    with (tmp_path / "lock/pve-config-200.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        refused = pytest.raises(PctError, match=r"can't lock file .*/pve-config-200\.lock' - got timeout")
        with refused, locks.config_lock(200, timeout_s=0.2):
            pytest.fail("the lock was held by another")


def test_without_a_lock_key_nothing_is_locked():
    locks.check_lock(Section(keys={"arch": "amd64"}))


def test_pending_changes_act_at_the_start(place):
    config = containers.load(place, 200)
    config.pending.keys.update({"memory": "1024", "delete": "hostname"})

    containers.apply_pending(place, 200, config)

    assert containers.load(place, 200).main.keys == {"arch": "amd64", "memory": "1024"}
    assert "pve:pending" not in place.path(200).read_text()
