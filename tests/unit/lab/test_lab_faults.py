"""The edits behind the faults, and what an unknown fault is told."""

import pytest

from tests.lab import faults
from tests.lab.errors import LabError
from tests.lab.faults import text
from tests.lab.fleet import make_fleet

CONF = """\
arch: amd64
memory: 512
lxc.cgroup2.devices.allow: c 7:* rwm
lxc.cgroup2.devices.allow: c 203:* rwm
"""
SNAPSHOT = "\n[before]\nmemory: 256\nlxc.cgroup2.devices.allow: c 203:* rwm\n"


def test_a_rule_is_dropped_and_no_other_line():
    assert text.without_rules(CONF, 203) == CONF.replace("lxc.cgroup2.devices.allow: c 203:* rwm\n", "")


@pytest.mark.parametrize(
    "line",
    [" lxc.cgroup2.devices.allow: c 203:* rwm", "lxc.cgroup.devices.allow = c 203:* rwm"],
    ids=["with a blank before it", "as cgroup v1"],
)
def test_earlier_faults_on_the_same_rule_are_dropped_too(line):
    assert text.without_rules(f"{CONF}{line}\n", 203).count("203") == 0


def test_a_major_is_not_taken_for_a_longer_one():
    assert text.without_rules("lxc.cgroup2.devices.allow: c 2030:* rwm\n", 203).count("2030") == 1


def test_lines_are_added_before_the_snapshots():
    assert text.with_lines(CONF + SNAPSHOT, "lock: backup") == f"{CONF}lock: backup\n{SNAPSHOT}"


def test_a_snapshot_is_appended_with_the_plain_keys_and_the_line():
    assert text.with_snapshot(CONF + SNAPSHOT, "later", "lxc.environment: A=1") == (
        f"{CONF}{SNAPSHOT}\n[later]\narch: amd64\nmemory: 512\nsnaptime: 1764460800\nlxc.environment: A=1\n"
    )


def test_an_unknown_fault_is_refused_with_those_that_are_known():
    fleet = make_fleet()

    with pytest.raises(LabError, match="no fault 'gremlins'; there are: uvm-rule-missing, "):
        faults.make("gremlins", fleet.nodes[0], fleet.hosts[0])
