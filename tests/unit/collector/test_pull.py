"""A pull through the real ansible-runner, from a node that is this machine and one that is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from collector.intake import known_files
from tests.unit.collector.result_builder import CampaignBuilder

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def node(tmp_path):
    return CampaignBuilder(tmp_path / "bench" / "lab-small").start().run_all()


@pytest.fixture
def inventory(tmp_path, node):
    """ct200 is this machine; ct999 has no ssh server."""
    hosts = {
        "ct200": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "bench_run_dir": str(node.folder.parent),
        },
        "ct999": {"ansible_host": "127.0.0.9", "ansible_port": 9},
    }
    path = tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump({"all": {"children": {"nodes": {"hosts": hosts}}}}))
    return path


@pytest.fixture
def collector(tmp_path, inventory):
    """Run the command line as an operator does, with an environment as an outer playbook leaves it."""

    def run(*words: str, inventory: Path = inventory, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "collector", "pull", "--inventory", str(inventory), *words]
        (tmp_path / "tmp").mkdir(exist_ok=True)
        return subprocess.run(
            [*command, "--results", str(tmp_path / "results")],
            cwd=PROJECT,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_a_pull_takes_what_it_reaches_and_names_the_rest(collector, node, tmp_path):
    outer = {
        "ANSIBLE_STDOUT_CALLBACK": "no_such_callback",
        "ANSIBLE_CALLBACK_PLUGINS": "/nowhere",
        "ANSIBLE_CHECK_MODE": "1",
        "ANSIBLE_CONFIG": "/nowhere/ansible.cfg",
        "AWX_ISOLATED_DATA_DIR": "/nowhere",
        "BENCH_SECRET": "hunter2",
    }
    done = collector(**outer)
    assert done.returncode == 3, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("ct999: not reached:") for line in lines)
    files = known_files(node.folder)
    assert any(line.startswith(f"ct200: lab-small: {len(files)} new, 0 updated") for line in lines)
    assert lines[-1] == "incomplete: ct999; complete: 1 of 2 nodes"
    assert known_files(tmp_path / "results/raw/ct200/lab-small") == files
    # Nothing of the run stays: its artifacts would hold the environment.
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "results/.incoming").iterdir()) == []

    again = collector("--limit", "ct200")
    assert again.returncode == 0
    assert again.stdout == f"ct200: lab-small: nothing new, {len(files)} files as before\n"


def test_a_limit_without_nodes_is_named(collector):
    done = collector("--limit", "ct201")
    assert done.returncode == 1
    assert "ct201" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_inventory_that_is_not_there_is_named(collector, tmp_path):
    done = collector(inventory=tmp_path / "missing.yml")
    assert done.returncode == 1
    assert "missing.yml" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupted_pull_leaves_nothing_half_done(tmp_path, inventory, node):
    """The node's Python takes its time, and the operator does not."""
    slow = tmp_path / "slow-python"
    slow.write_text(f'#!/bin/sh\nsleep 20\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    hosts = yaml.safe_load(inventory.read_text())
    hosts["all"]["children"]["nodes"]["hosts"]["ct200"]["ansible_python_interpreter"] = str(slow)
    inventory.write_text(yaml.safe_dump(hosts))
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "collector", "pull", "-i", str(inventory), "-l", "ct200"),
            *("--results", str(tmp_path / "results")),
        ],
        cwd=PROJECT,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 20
        while not list((tmp_path / "results").glob(".incoming/*/known")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        _out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - started < 5
    assert err == "collector: interrupted; what was written is whole, and running again does the rest\n"
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list((tmp_path / "results/.incoming").iterdir()) == []
    assert not (tmp_path / "results/raw").exists()
