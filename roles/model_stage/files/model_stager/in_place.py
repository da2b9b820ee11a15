"""Serve a model from where it lies on a disk: proven by its sums once, then by a quick proof.

The folder belongs to somebody else (a cache, a directory), so the record is kept apart from it, and the
stamps are those of the files that its links lead to. Neither boot nor device is compared: a disk keeps its
inodes over a reboot, and may come up under another device number.
"""

from __future__ import annotations

import os
import pwd
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model_stager import lock, proof
from model_stager.errors import NoSourceError, SourceUnusableError, StoppedError
from model_stager.inventory import renew
from model_stager.manifest import write_whole
from model_stager.outcome import Outcome
from model_stager.plan import FULL_CHECK
from model_stager.progress import Reporter
from model_stager.room import measure_room
from model_stager.staging import prepare_state
from model_stager.steps import hash_in_steps
from model_stager.tally import Tally
from model_stager.text import some_text
from model_stager.workers import Crew, FileByFile

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from model_stager.manifest import FileEntry, Manifest
    from model_stager.plan import Plan
    from model_stager.request import Request
    from model_stager.sources import Source
    from model_stager.staging import Options

KIND = "in_place"
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")


@dataclass(frozen=True)
class Found:
    """A folder that seems to have the whole model."""

    folder: Path
    source: Source
    why: str  # why it must be hashed; empty when the quick proof holds


@dataclass(frozen=True)
class Disk:
    """How a model is served from a disk."""

    state_dir: Path  # where the records are kept
    reader: str = ""  # the user who serves; empty when that does not matter
    because: str = ""  # why it is not in memory

    def record(self, name: str) -> Path:
        return self.state_dir / f"{name}.proof.json"


def look(name: str, plan: Plan, disk: Disk) -> Found:
    """The first source with all files in one folder, where the reader can read them; reads no weights."""
    record, manifest, found = proof.read(disk.record(name)), plan.manifest, None
    for source in plan.sources:
        try:
            folder = _whole_folder(manifest, source)
            _require_readable(folder, manifest, disk.reader)
        except SourceUnusableError as exc:
            plan.reasons.add(source, exc)
            continue
        why = _why_not_proven(record, folder, manifest)
        if not why:
            return Found(folder, source, "")
        found = found or Found(folder, source, why)
    if found is None:
        raise NoSourceError(f"{name}: no source on this node has it whole in one folder: {plan.reasons}")
    return found


def _whole_folder(manifest: Manifest, source: Source) -> Path:
    folders: dict[Path, str] = {}
    for entry in manifest.files:
        origin = source.locate(entry)
        if origin.path is None:
            raise SourceUnusableError("it is on a network, nothing can be served from there")
        depth = entry.name.count("/")
        if not str(origin.path).endswith(f"/{entry.name}"):
            raise SourceUnusableError(f"{entry.name} is only at {origin.path}, not under its name")
        folders.setdefault(origin.path.parents[depth], entry.name)
    if len(folders) != 1:
        raise SourceUnusableError(f"its files lie in several folders ({some_text([*map(str, folders)])})")
    folder = next(iter(folders))
    names = {entry.name for entry in manifest.files}
    more = sorted(name for name in os.listdir(folder) if name.endswith(WEIGHTS) and name not in names)  # noqa: PTH208 - names
    if more:
        raise SourceUnusableError(
            f"{folder} also has {some_text(more)}, which an engine would load and the model does not include"
        )
    return folder


def _require_readable(folder: Path, manifest: Manifest, reader: str) -> None:
    """A cache below /root can be hashed by the stager, and not be read by the engine."""
    if not reader:
        return
    try:
        owner = pwd.getpwnam(reader)
        uid, groups = owner.pw_uid, set(os.getgrouplist(reader, owner.pw_gid))
    except KeyError:  # it is made later, and owns nothing yet
        uid, groups = -1, set()
    if uid == 0:
        return
    seen: set[Path] = set()
    for entry in manifest.files:
        real = (folder / entry.name).resolve()
        for path in (real, *real.parents, *(folder / entry.name).parents):
            if path in seen:
                continue
            seen.add(path)
            found = path.stat()
            want = 1 if stat.S_ISDIR(found.st_mode) else 4
            shift = 6 if found.st_uid == uid else 3 if found.st_gid in groups else 0
            if not found.st_mode >> shift & want:
                mode = stat.S_IMODE(found.st_mode)
                raise SourceUnusableError(f"{path} (mode {mode:o}) can't be read by the user {reader}")


def _stamps(folder: Path, manifest: Manifest) -> dict[str, list[int]]:
    return {entry.name: proof.stamp((folder / entry.name).stat()) for entry in manifest.files}


def _why_not_proven(record: dict[str, Any] | None, folder: Path, manifest: Manifest) -> str:
    if record is None or record.get("kind") != KIND:
        return "it was never verified there"
    if record["manifest_digest"] != manifest.digest:
        return "other contents were verified there"
    if record.get("folder") != str(folder):
        return f"it was verified in {record.get('folder')}"
    was, now = record["files"], _stamps(folder, manifest)
    changed = [name for name in now if now[name] != was.get(name)]
    return f"{some_text(changed)} changed since it was verified" if changed else ""


def prove_in_place(
    request: Request, options: Options, stop: threading.Event, plan: Plan, disk: Disk
) -> Outcome:
    """Prove the model where it lies; what is hashed and found right is recorded."""
    started = time.monotonic()
    found = look(request.name, plan, disk)
    outcome = Outcome("none", plan.manifest, [], because=disk.because)
    outcome.folder, outcome.served_from = found.folder, found.source.label
    if found.why or options.deep:
        prepare_state(request)
        disk.state_dir.mkdir(parents=True, exist_ok=True)  # before what takes long
        with lock.held(request.state / "lock", request.name, options.wait_s):
            (request.state / "result.json").unlink(missing_ok=True)  # of an earlier run
            before = _stamps(found.folder, plan.manifest)  # a change while it is hashed is found next time
            try:
                _hash_all(request, options, stop, plan, found)
            except StoppedError:
                said = "stopped before it was verified; the next run starts again"
                raise StoppedError(f"{request.name}: {said}") from None
            write_whole(disk.state_dir / f"{request.name}.manifest.json", plan.manifest.to_json())
            record = {"schema_version": proof.SCHEMA_VERSION, "kind": KIND, "files": before}
            record.update(manifest_digest=plan.manifest.digest, folder=str(found.folder))
            write_whole(disk.record(request.name), record)
        outcome.action, outcome.why = "rehash", [found.why or FULL_CHECK]
        outcome.changed = bool(found.why)
    renew(disk.record(request.name))
    outcome.seconds = time.monotonic() - started
    return outcome


def _hash_all(request: Request, options: Options, stop: threading.Event, plan: Plan, found: Found) -> None:
    tally = Tally(plan.manifest.total_bytes)
    wrong: list[str] = []
    available = measure_room(found.folder).memory_available or 0
    drop = plan.manifest.total_bytes > available // 2  # else the engine finds it in the page cache

    def check(entry: FileEntry) -> None:
        tally.begin(entry.name, found.source.label)
        sha256 = hash_in_steps(found.folder / entry.name, tally, stop, drop=drop)
        tally.end(entry.name, {})
        if sha256 != entry.sha256:
            wrong.append(f"{entry.name} has sha256 {sha256}, the manifest says {entry.sha256}")

    files = sorted(plan.manifest.files, key=lambda entry: -(entry.size_bytes or 0))
    reporter = Reporter(request.state / "progress.json", request.name, options.run)
    with reporter.during("checking", tally):
        Crew(options.threads, stop, options.stall_s).run(FileByFile(files, check))
    if wrong:
        raise NoSourceError(
            f"{request.name}: {found.folder} is not what it should be: {some_text(wrong, 2)}. "
            "Download it again, or name another source"
        )
