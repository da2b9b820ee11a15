"""The stand-in pct reads and rewrites container files as the real Proxmox was recorded to do."""

import json
from pathlib import Path

import pytest

from tests.lab.pct.conf import device_options, parse, write

CASES = sorted((Path(__file__).parents[2] / "data/lxc-conf").glob("*.conf"))


def recorded(case):
    return json.loads(case.with_suffix(".pve.json").read_text())


def read(case):
    return parse(case.read_bytes().decode(), 200)


def test_the_recorded_cases_are_here():
    assert len(CASES) == 39


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_rewrite_gives_the_recorded_file(case):
    assert write(read(case)) == recorded(case)["after_next_write_by_pve"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_same_lines_are_warned_about(case):
    assert read(case).warnings == recorded(case)["warnings"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_each_section_is_read_as_recorded(case):
    config, expected = read(case), recorded(case)

    sections = {"main": config.main, "pending": config.pending, **config.snapshots}
    for name, section in sections.items():
        record = expected[name] if name in ("main", "pending") else expected["snapshots"][name]
        assert section.keys == {key: str(value) for key, value in record["keys"].items()}
        assert section.lxc == [tuple(entry) for entry in record["lxc"]]
        assert section.description == record.get("description", "")
    assert set(config.snapshots) == set(expected["snapshots"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_second_rewrite_changes_nothing(case):
    once = write(read(case))

    assert write(parse(once, 200)) == once


@pytest.mark.parametrize("text", ["100%", "a%20b", "Größe", "tab\there"])
def test_a_description_survives_its_encoding(text):
    config = parse("arch: amd64\n", 200)
    config.main.description = f"{text}\n"

    again = parse(write(config), 200)

    assert again.main.description == f"{text}\n"
    assert write(config).isascii()


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("/dev/nvidia0,mode=0666", {"path": "/dev/nvidia0", "mode": "0666"}),
        ("path=/dev/nvidia0,uid=3", {"path": "/dev/nvidia0", "uid": "3"}),
        ("/dev/nvidia0", {"path": "/dev/nvidia0"}),
    ],
)
def test_the_options_of_a_device_entry(value, options):
    assert device_options(value) == options
