"""The laws of editing, for every recorded case, for what hypothesis thinks of, and for random files."""

import sys
from pathlib import Path

import pytest
from ansible.module_utils.pve_lxc.conf import as_written_by_pve, decode, encode, parse, split_lines
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from pve_lxc_laws import edited
from pve_lxc_random_files import ENDS, LINES, random_file

CASES = sorted((Path(__file__).resolve().parents[2] / "data/lxc-conf").glob("*.conf"))
GRANTS = ("auto", "rules", "devices")
VERSIONS = ("", "7.4.1", "9.1.1")


@pytest.mark.parametrize("grant", GRANTS)
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_recorded_cases_keep_the_laws(case, grant):
    edited(decode(case.read_bytes()), grant, pve_version="8.2.4")


a_line = st.sampled_from(LINES) | st.binary(max_size=20)
a_file = st.lists(st.tuples(a_line, st.sampled_from(ENDS)), max_size=16).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@settings(max_examples=300, deadline=None)
@given(raw=a_file, cut=st.booleans(), grant=st.sampled_from(GRANTS), version=st.sampled_from(VERSIONS))
def test_any_file_keeps_the_laws(raw, cut, grant, version):
    edited(decode(raw.rstrip(b"\n") if cut else raw), grant, pve_version=version)


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=400))
def test_any_bytes_survive_reading_and_proxmoxs_rewrite_is_stable(raw):
    text = decode(raw)
    assert encode(text) == raw
    assert "".join(split_lines(text)) == text
    once = as_written_by_pve(parse(text))
    assert not parse(once).ignored
    assert as_written_by_pve(parse(once)) == once


def fuzz(seeds):
    for seed in seeds:
        raw = random_file(seed)
        text = decode(raw)
        assert encode("".join(split_lines(text))) == raw
        edited(text, GRANTS[seed % 3], pve_version=VERSIONS[seed // 3 % 3])


def test_random_files_keep_the_laws():
    fuzz(range(1500))


@pytest.mark.long
def test_ten_thousand_random_files_keep_the_laws():
    fuzz(range(10_000, 20_000))
