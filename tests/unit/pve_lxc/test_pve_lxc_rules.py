"""Device rules as LXC's own parser takes them, and what they allow together."""

import pytest
from ansible.module_utils.pve_lxc.conf import parse
from ansible.module_utils.pve_lxc.rules import (
    Grants,
    is_dynamic,
    mended_rule,
    nvidia_majors,
    parse_proc_devices,
    parse_rule,
)


@pytest.mark.parametrize(
    "value",
    [
        "a",
        "c 195:* rwm",
        "c 195:* rw",
        "c *:* m",
        "b 8:0 r",
        "a 1:1 rwm",
        "c 195:* rwm # gpu",
        "c\t195:* rwm",
    ],
)
def test_lxc_takes(value):
    assert parse_rule(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "c  195:* rwm",
        "c 195:* rw # gpu",
        "c 0xc3:* rwm",
        "195:* rwm",
        "c 195 rwm",
        "c 195:*",
        "x 1:1 r",
        "c 195:* rx",
    ],
)
def test_lxc_refuses(value):
    assert parse_rule(value) is None


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("c  195:* rwm", "c 195:* rwm"),
        ("c 195:* rw # gpu", "c 195:* rw"),
        ("c 195 : * rwm", "c 195:* rwm"),
        ("c 1ff:* rwm", "c 511:* rwm"),
        ("c 0x1ff:* rwm", "c 511:* rwm"),
        ("c 1fe:* rwm", ""),
        ("whatever", ""),
        ("c 195:* write", ""),
    ],
)
def test_what_was_meant(value, meant):
    assert mended_rule(value, [195, 511]) == meant
    assert not meant or parse_rule(meant)


def grants(*entries):
    return Grants(parse("".join(f"lxc.cgroup2.devices.{entry}\n" for entry in entries)).main.entries)


@pytest.mark.parametrize(
    ("entries", "is_open"),
    [
        ([], False),
        (["allow: c 195:* rwm"], True),
        (["allow: c 195:0 rw"], True),
        (["allow: c 195:1 rw"], False),
        (["allow: c 195:* r", "allow: c 195:* w"], False),
        (["allow: c *:* rwm"], True),
        (["allow: a 195:* rwm"], True),
        (["allow: b 195:* rwm"], False),
        (["allow: a"], True),
        (["allow: a", "deny: a"], False),
        (["deny: a", "allow: c 195:* rwm"], True),
        (["allow: c 195:* rwm", "deny: a"], False),
        (["allow: a", "deny: c 195:* rwm"], False),
        (["allow: c 195:* rwm", "deny: c 195:* rwm"], False),
        (["deny: c 195:* rwm", "allow: c 195:* rwm"], True),
    ],
)
def test_what_rules_allow_together(entries, is_open):
    assert grants(*entries).open(195, 0) is is_open


def test_proc_devices_is_read_by_section_and_exact_name():
    devices = parse_proc_devices(
        "Character devices:\n195 nvidia\n 10 misc\n\nBlock devices:\n  8 sd\n511 nvidia-uvm\n"
    )
    assert devices == {195: ["nvidia"], 10: ["misc"]}
    assert nvidia_majors(devices) == {195: ["nvidia"]}


def test_only_numbers_that_the_kernel_picks_are_dynamic():
    assert [major for major in range(600) if is_dynamic(major)] == [*range(234, 255), *range(384, 512)]
