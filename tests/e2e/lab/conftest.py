"""Rooms of these tests' own, also when they run in a room: the lab of the other tests is left alone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lab_room import Room


@pytest.fixture(scope="session")
def room():
    room = Room()
    yield room
    room.close()


@pytest.fixture
def fresh(room):
    """The room with a lab in the state of the story."""
    room.lab("up --fresh")
    return room


@pytest.fixture
def healthy(fresh):
    """The same after a repair by hand."""
    fresh.repair()
    assert fresh.probe()["cuInit"] == 0
    return fresh
