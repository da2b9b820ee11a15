"""Stage one model: look, hash what is in doubt, copy what is missing, publish the whole."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model_stager import lock, proof
from model_stager.copying import Copying
from model_stager.errors import BadRequestError, NoRoomError, NoSourceError, StagerError, StoppedError
from model_stager.inspection import BadFiles
from model_stager.landing import FULL
from model_stager.manifest import FileEntry, write_whole
from model_stager.outcome import Outcome
from model_stager.parts import PartJournal
from model_stager.plan import Plan, make_plan, partial_folder, request_record, require_possible
from model_stager.progress import Reporter
from model_stager.publish import publish, remove
from model_stager.room import measure_room
from model_stager.steps import hash_in_steps
from model_stager.tally import Tally
from model_stager.transfer import Transfer
from model_stager.workers import Crew, FileByFile

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from model_stager.request import Request
    from model_stager.sources import Source


@dataclass(frozen=True)
class Options:
    """How to work, as against what to stage."""

    threads: int
    wait_s: float = 1.0
    deep: bool = False
    run: str = ""
    stall_s: float = 30.0  # without a byte: the source is left for the next one
    patience_s: float = 60.0  # of waiting for a source that fails and may recover, per file


def stage(
    request: Request, options: Options, stop: threading.Event, sources: list[Source] | None = None
) -> Outcome:
    """Make the model be under its name, whole and proven; `sources` have perhaps been asked already."""
    started = time.monotonic()
    plan = make_plan(request, deep=options.deep, sources=sources)
    if plan.action == "none":
        return Outcome("none", plan.manifest, [], seconds=time.monotonic() - started)
    try:
        prepare_state(request)
        with lock.held(request.state / "lock", request.name, options.wait_s):
            # Another stager may have finished meanwhile.
            plan = make_plan(request, deep=options.deep, sources=plan.sources)
            if plan.action == "none":
                return Outcome("none", plan.manifest, [], seconds=time.monotonic() - started)
            return Stager(request, options, stop, plan).work(started)
    except StoppedError:
        raise StoppedError(f"{request.name}: stopped; verified parts stay for the next run") from None
    except OSError as exc:
        if exc.errno not in FULL:
            raise
        require_possible(request, plan, plan.missing, partial_folder(request, plan.manifest))
        full = f"{exc.strerror} ({exc.filename or request.state})"
        raise NoRoomError(f"{request.name}: {request.root} has no room left: {full}") from exc


def prepare_state(request: Request) -> None:
    """The folder for lock, journal and progress; in a sticky root, anybody could have made it."""
    if not os.access(request.root, os.W_OK):
        raise BadRequestError(f"{request.name}: {request.root} can't be written by uid {os.geteuid()}")
    for folder in (request.state.parent, request.state):
        folder.mkdir(mode=0o755, exist_ok=True)
        found = folder.lstat()
        if folder.is_symlink() or found.st_uid not in (os.geteuid(), 0):
            raise StagerError(f"{folder} belongs to uid {found.st_uid}: remove it, then run again")
        if not os.access(folder, os.W_OK):
            raise StagerError(
                f"{folder} belongs to uid {found.st_uid} and can't be written by uid {os.geteuid()}: "
                "stage as the user who staged before, or remove it"
            )


class Stager:
    """The work on one model, under its lock."""

    def __init__(self, request: Request, options: Options, stop: threading.Event, plan: Plan) -> None:
        self._request = request
        self._options = options
        self._stop = stop
        self._plan = plan
        self._partial = partial_folder(request, plan.manifest)
        self._bad_files = BadFiles(request.state / "bad", request.root, request.reserve_bytes)
        self._reporter = Reporter(request.state / "progress.json", request.name, options.run)

    def work(self, started: float) -> Outcome:
        plan, request = self._plan, self._request
        (request.state / "result.json").unlink(missing_ok=True)  # of an earlier run
        wrong = self._hash_suspects()
        outcome = Outcome("rehash", plan.manifest, plan.why)
        outcome.changed = not plan.recorded
        missing = (*plan.missing, *wrong)
        if missing or plan.comparison.extra:
            outcome.action, outcome.changed = "stage", True
            self._copy(missing, outcome)
            publish(self._partial, request.published)
        self._remove_stale(None)  # also what a run left that was killed just after it had published
        write_whole(request.manifest_path, plan.manifest.to_json())
        write_whole(
            request.proof_path, proof.make(request.published, plan.manifest.digest, request_record(request))
        )
        (request.state / "journal.jsonl").unlink(missing_ok=True)
        outcome.gone_on = plan.reasons.told()
        outcome.seconds = time.monotonic() - started
        return outcome

    def _crew(self) -> Crew:
        return Crew(self._options.threads, self._stop, self._options.stall_s)

    def _hash_suspects(self) -> list[FileEntry]:
        """Which of the unproven files are wrong."""
        suspects = self._plan.suspects
        tally = Tally(sum(entry.size_bytes or 0 for entry in suspects))
        wrong: list[FileEntry] = []

        def check(entry: FileEntry) -> None:
            tally.begin(entry.name, "the published copy")
            path = self._request.published / entry.name
            sha256 = hash_in_steps(path, tally, self._stop, drop=False)
            tally.end(entry.name, {})
            if sha256 != entry.sha256:
                wrong.append(entry)

        if suspects:
            with self._reporter.during("checking", tally):
                self._crew().run(FileByFile(suspects, check))
        return wrong

    def _copy(self, missing: tuple[FileEntry, ...], outcome: Outcome) -> None:
        """Make room, then fill the partial folder: links to what is right already, copies of the rest."""
        plan, request = self._plan, self._request
        self._remove_stale(self._partial)
        self._bad_files.clear()
        require_possible(request, plan, missing, self._partial)
        self._partial.mkdir(mode=0o755, exist_ok=True)
        with lock.folder_held(self._partial, request.name):
            self._fill(missing, outcome)

    def _fill(self, missing: tuple[FileEntry, ...], outcome: Outcome) -> None:
        plan, request = self._plan, self._request
        wanted = {entry.name for entry in missing}
        missing = missing + self._link([entry for entry in plan.manifest.files if entry.name not in wanted])
        tally = Tally(sum(entry.size_bytes or 0 for entry in missing))
        journal = PartJournal(request.state / "journal.jsonl", plan.manifest.digest)
        crew = self._crew()
        patience_s = self._options.patience_s
        copying = Copying(
            [Transfer(entry, plan.sources, plan.reasons, patience_s) for entry in missing],
            crew,
            folder=self._partial,
            journal=journal,
            tally=tally,
            reasons=plan.reasons,
            bad_files=self._bad_files,
            durable=not measure_room(request.root).in_memory,
        )
        try:
            with self._reporter.during("copying", tally):
                crew.run(copying)
        except NoSourceError as exc:
            raise NoSourceError(f"{request.name}: {exc}") from exc
        finally:
            copying.close()
            journal.close()
        self._require_exact()
        outcome.by_source = tally.by_source
        outcome.copied_bytes = sum(given["bytes"] for given in tally.by_source.values())
        outcome.copied_files = len(missing)
        outcome.resumed_bytes = tally.resumed_bytes

    def _remove_stale(self, keep: Path | None) -> None:
        """Of other contents than are wanted now, or left by a run that was killed."""
        for stale in self._request.root.glob(f"{self._request.name}.partial-*"):
            if stale != keep:
                remove(stale)

    def _link(self, right: list[FileEntry]) -> tuple[FileEntry, ...]:
        """Link the published files that are right; what can't be linked is copied after all."""
        left = []
        for entry in right:
            target = self._partial / entry.name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.unlink(missing_ok=True)
                os.link(self._request.published / entry.name, target, follow_symlinks=False)
            except OSError:
                left.append(entry)
        return tuple(left)

    def _require_exact(self) -> None:
        """Nothing but the manifest's files may be published."""
        names = {entry.name for entry in self._plan.manifest.files}
        for name in set(proof.take(self._partial)) - names:
            (self._partial / name).unlink()
