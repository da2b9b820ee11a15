"""quirks.json: what is remembered of faults on this node, for all its campaigns; changed under a lock."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, field

from bench_runner.errors import BenchError
from bench_runner.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STORE_VERSION = 1
STORE_SCHEMA = "recover-and-bench/quirks"
State = Literal["proposed", "active", "rejected", "retired"]


class QuirkStoreError(BenchError):
    """The node's memory of faults can't be read or written."""


class Subject(Struct, frozen=True, kw_only=True):
    """The configuration that a fault is of, as it was served: its name may change, its flags may not."""

    engine: str
    model: str
    tensor_parallelism: int
    gpu_model: str | None
    flags: dict[str, Any]


class Sighting(Struct, frozen=True, kw_only=True):
    """One time that it was seen, or that a probe went well: where, on what build and driver."""

    at: str
    campaign: str
    run: str
    cell: str
    engine_build: str | None
    driver_version: str | None

    def is_on(self, build: str | None, driver: str | None) -> bool:
        return (self.engine_build, self.driver_version) == (build, driver)


class Entry(Struct, frozen=True, kw_only=True):
    """`subject` is None where the entry is only a word on a quirk of the plan."""

    name: str
    state: State
    reason: str
    signature: str | None = None
    source: str = "crash"
    subject: Subject | None = None
    seen: list[Sighting] = field(default_factory=list)
    fine: list[Sighting] = field(default_factory=list)
    changed_at: str
    changed_by: str

    def seen_on(self, build: str | None, driver: str | None) -> str:
        """When it was last seen there; empty where it never was."""
        return max((each.at for each in self.seen if each.is_on(build, driver)), default="")

    def fine_on(self, build: str | None, driver: str | None) -> str:
        return max((each.at for each in self.fine if each.is_on(build, driver)), default="")


class Memory(Struct, frozen=True, kw_only=True):
    schema: str = STORE_SCHEMA
    schema_version: int = STORE_VERSION
    quirks: list[Entry] = field(default_factory=list)

    def named(self, name: str) -> Entry | None:
        return next((entry for entry in self.quirks if entry.name == name), None)

    def put(self, entry: Entry) -> Memory:
        others = [each for each in self.quirks if each.name != entry.name]
        return Memory(quirks=sorted([*others, entry], key=lambda each: each.name))


def read_memory(path: Path) -> Memory:
    try:
        memory = msgspec.json.decode(path.read_bytes(), type=Memory)
    except FileNotFoundError:
        return Memory()
    except OSError as exc:
        raise QuirkStoreError(f"{path}: {exc.strerror}") from exc
    except msgspec.DecodeError as exc:
        raise QuirkStoreError(
            f"{path} can't be read: {exc}; move it away to begin anew (the journals have the crashes)"
        ) from exc
    if memory.schema_version > STORE_VERSION:
        raise QuirkStoreError(
            f"{path}: schema_version {memory.schema_version} is newer than {STORE_VERSION}; update the runner"
        )
    return memory


class Change:
    """What a block of `changing` may replace: `memory` is written when it ends without an error."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory


@contextmanager
def changing(path: Path) -> Iterator[Change]:
    """A person and a runner may change it at one time: each sees the other's change."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as exc:
        raise QuirkStoreError(
            f"{lock}: {exc.strerror}; who may write there: the runner's user, and root"
        ) from exc
    try:
        _give_to_owner_of(path.parent, lock)
        fcntl.flock(handle, fcntl.LOCK_EX)
        change = Change(read_memory(path))
        before = change.memory
        yield change
        if change.memory != before:
            write_whole(path, msgspec.json.format(msgspec.json.encode(change.memory), indent=1) + b"\n")
            _give_to_owner_of(path.parent, path)
    except OSError as exc:
        raise QuirkStoreError(f"{path}: {exc.strerror}") from exc
    finally:
        os.close(handle)


def _give_to_owner_of(folder: Path, path: Path) -> None:
    """What root writes by hand stays the runner's."""
    if os.geteuid() == 0:
        there = folder.stat()
        os.chown(path, there.st_uid, there.st_gid)
