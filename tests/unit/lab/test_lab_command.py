"""The command line outside of a room: each thing that is missing is one clear sentence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
NOBODY = 65534


def lab(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "tests.lab", *words],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.mark.skipif(os.environ.get("LAB_ROOM") == "1", reason="this is a room")
@pytest.mark.parametrize(
    "verb",
    [
        ["up"],
        ["down"],
        ["status"],
        ["reboot-host", "pve"],
        ["power-cut", "pve"],
        ["break", "stale-rule"],
        ["ssh", "pve"],
    ],
    ids=lambda verb: verb[0],
)
def test_a_verb_outside_of_the_room_says_how_to_enter_it(verb):
    done = lab(*verb)

    assert done.returncode == 1
    assert done.stderr.startswith("lab: this works inside the room only: `python -m tests.lab enter -- CMD…`")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_without_root_it_says_so():
    done = subprocess.run(
        [shutil.which("python3", path="/usr/bin"), "-B", "-m", "tests.lab", "enter", "--", "true"],
        cwd=PROJECT,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr == "lab: the lab makes namespaces, mounts and device nodes: run it as root\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="the check for root comes first")
def test_missing_packages_are_named_with_the_command_that_installs_them(tmp_path):
    done = lab("enter", "--", "true", env={**os.environ, "PATH": str(tmp_path)})

    assert done.returncode == 1
    assert "apt-get install --no-install-recommends gcc libc6-dev iproute2 lxc mmdebstrap" in done.stderr


def test_the_faults_are_listed_with_what_they_are():
    done = lab("faults")

    assert done.returncode == 0
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert {"uvm-rule-missing", "uvm-major-moved", "device-node-missing"} <= set(names)
    assert all(len(line.split()) > 3 for line in done.stdout.splitlines())
