"""What Proxmox reads is what we read: every recorded file, and the corners that were read in its source."""

import json
from pathlib import Path

import pytest
from ansible.module_utils.pve_lxc.conf import as_written_by_pve, decode, encode, parse, split_lines

CASES = sorted((Path(__file__).resolve().parents[2] / "data/lxc-conf").glob("*.conf"))


def recorded(section):
    return {
        "keys": {key: str(value) for key, value in section["keys"].items()},
        "lxc": [tuple(entry) for entry in section["lxc"]],
        "description": section.get("description", ""),
    }


def read(section):
    return {
        "keys": section.keys,
        "lxc": [(entry.key, entry.value) for entry in section.entries],
        "description": section.description,
    }


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request):
    expected = json.loads(request.param.with_suffix(".pve.json").read_text())
    return decode(request.param.read_bytes()), expected


def test_every_recorded_case_is_here():
    assert len(CASES) == 39


def test_sections_are_read_as_by_proxmox(case):
    text, expected = case
    config = parse(text)
    assert read(config.main) == recorded(expected["main"])
    assert read(config.pending) == recorded(expected["pending"])
    assert {name: read(section) for name, section in config.snapshots.items()} == {
        name: recorded(section) for name, section in expected["snapshots"].items()
    }


def test_warnings_are_those_of_proxmox(case):
    text, expected = case
    config = parse(text)
    ours = sorted([*config.ignored, *config.warned], key=lambda line: line.line_no)
    assert [f"vm 200 - {line.why}" for line in ours] == expected["warnings"]


def test_the_next_write_is_that_of_proxmox(case):
    text, expected = case
    written = as_written_by_pve(parse(text))
    assert written == expected["after_next_write_by_pve"]
    assert (written == text) == expected["unchanged_by_that_write"]


def test_every_byte_of_a_file_survives_reading(case):
    text, _ = case
    assert "".join(split_lines(text)) == text
    assert decode(encode(text)) == text


def test_ignored_lines_are_found_with_their_place():
    config = parse("arch: amd64\n lxc.cgroup2.devices.allow: c 195:* rwm\n")
    assert [(line.line_no, line.text) for line in config.ignored] == [
        (2, " lxc.cgroup2.devices.allow: c 195:* rwm")
    ]


def test_a_section_opened_twice_starts_afresh():
    config = parse("[snap]\nmemory: 1\n[snap]\ncores: 2\n")
    assert config.snapshots["snap"].keys == {"cores": "2"}


def test_main_ends_at_the_first_header_that_proxmox_accepts():
    assert parse("a: 1\n[1bad]\nlxc.tty.max: 1\n[good]\n").main_end == 3


def test_description_key_and_comments_are_one_text():
    assert parse("#a%3Ab\ndescription: tail\n").main.description == "a:b\ntail"


def test_control_characters_of_comments_are_escaped_at_the_next_write():
    assert as_written_by_pve(parse("#a:b\r\n")) == "#a%3Ab%0D\n"


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("onboot: yes", {"onboot": "1"}),
        ("memory: 0512", {"memory": "512"}),
        ("cpulimit: 1.5", {"cpulimit": "1.5"}),
    ],
)
def test_values_are_kept_as_proxmox_keeps_them(line, keys):
    assert parse(line).main.keys == keys


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("memory: lots", "type check ('integer') failed - got 'lots'"),
        ("dev0: /dev/../etc,mode=0666", "format error\npath: invalid format"),
        ("dev0: mode=0666", "format error\npath: Path has to be defined"),
        ("dev0: /dev/x,colour=red", "format error\ncolour: unknown property"),
    ],
)
def test_values_that_proxmox_complains_about_are_kept_and_named(line, complaint):
    config = parse(line)
    assert [warned.why.split(" - ", 1)[1] for warned in config.warned] == [complaint]
    assert config.main.keys
