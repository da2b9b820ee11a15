"""The room: exit statuses pass, others see nothing of it, and nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab_room import ENTER, PROJECT, Room

from tests.lab import room as rooms

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def test_the_exit_status_is_the_commands():
    assert subprocess.run([*ENTER, "sh", "-c", "exit 7"], cwd=PROJECT, check=False).returncode == 7


def test_a_command_that_is_not_there_is_said_so():
    done = subprocess.run([*ENTER, "no-such-tool"], cwd=PROJECT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (
        127,
        "lab: cannot run no-such-tool: No such file or directory\n",
    )


@pytest.mark.parametrize(
    "ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda s: s.name
)
def test_nothing_stays_when_the_room_is_interrupted(ending, tmp_path):
    """A marker in the command line is how the room's processes are known from outside."""
    marker = f"marker-{tmp_path.name}-{os.getpid()}"
    script = f"{sys.executable} -m tests.lab up && touch {tmp_path}/up; exec -a {marker} sleep 600"
    entered = subprocess.Popen([*ENTER, "bash", "-c", script], cwd=PROJECT, stdout=subprocess.DEVNULL)
    while not (tmp_path / "up").exists():
        assert entered.poll() is None
        time.sleep(0.1)
    mine = [path for path in rooms.cgroup2_root().glob(f"{rooms.PREFIX}{entered.pid}-*") if path.is_dir()]
    assert len(mine) == 1
    assert processes(marker)

    entered.send_signal(ending)
    entered.wait(30)

    deadline = time.monotonic() + 10
    while processes(marker) or "populated 1" in populated(mine[0]):
        assert time.monotonic() < deadline, processes(marker)
        time.sleep(0.1)
    if ending == signal.SIGKILL:  # it could not clean up itself: the next room does
        subprocess.run([*ENTER, "true"], cwd=PROJECT, check=True)
    assert not mine[0].exists()


def processes(marker: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if marker in words:
            found.append(words)
    return found


def populated(cgroup: Path) -> str:
    try:
        return (cgroup / "cgroup.events").read_text()
    except FileNotFoundError:
        return ""


def test_two_rooms_do_not_see_each_other(fresh):
    other = Room()
    try:
        other.lab("up")
        other.on("ct200", "echo other > /root/whose")
        fresh.on("ct200", "echo mine > /root/whose")

        assert other.on("ct200", "cat /root/whose") == "other"
        assert fresh.on("ct200", "cat /root/whose") == "mine"
    finally:
        other.close()
