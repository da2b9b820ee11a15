"""Compare what is wanted with what is published; reads only, so that `check` and `stage` judge alike."""

from __future__ import annotations

import dataclasses
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model_stager import proof
from model_stager.errors import BadRequestError, NoSourceError
from model_stager.inventory import staged
from model_stager.manifest import FileEntry, Manifest, read_manifest
from model_stager.resolve import Reasons, given_manifest, require_sources, wanted_manifest
from model_stager.room import Asked, measure_room, on_disk, records_bytes, require_room
from model_stager.sources import open_sources

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from model_stager.request import Request
    from model_stager.sources import Source

FULL_CHECK = "a full check was asked for"


@dataclass(frozen=True)
class Plan:
    """What is right already, what must be hashed to know, and what must be copied."""

    manifest: Manifest
    comparison: proof.Comparison
    suspects: tuple[FileEntry, ...]  # of the right size, but without a proof
    missing: tuple[FileEntry, ...]
    sources: list[Source]
    reasons: Reasons
    recorded: bool  # whether the quick proof held, which a full check looks past

    @property
    def action(self) -> str:
        if self.comparison.proven:
            return "none"
        return "stage" if self.missing or self.comparison.extra else "rehash"

    @property
    def why(self) -> list[str]:
        return self.comparison.sentences()


def make_plan(request: Request, *, deep: bool = False, sources: list[Source] | None = None) -> Plan:
    """Look at the published copy and at the sources, as far as they are needed.

    Sources of an earlier plan know already what a server said then, and mean the same commit by a branch.
    """
    measure_room(request.root)  # a root that is not there is the first thing to say
    sources, reasons = sources or open_sources(request), Reasons()
    record = proof.read(request.proof_path)
    manifest = _published_manifest(request, record, sources)
    if manifest is None:
        manifest = _wanted_or_left(request, sources, reasons)
    comparison = proof.compare(request.published, record, manifest.digest)
    recorded = comparison.proven
    sums = _recorded_sums(request, record) if comparison.no_record == proof.OTHER_CONTENTS else {}
    if deep and comparison.no_record != "it is not there":
        comparison = proof.Comparison(no_record=FULL_CHECK, extra=comparison.extra)
    elif sums:
        right = frozenset(entry.name for entry in manifest.files if sums.get(entry.name) == entry.sha256)
        comparison = dataclasses.replace(comparison, intact=right)
    unproven = [entry for entry in manifest.files if entry.name not in comparison.intact]
    suspects = tuple(
        entry
        for entry in unproven
        if sums.get(entry.name, entry.sha256) == entry.sha256
        and _could_be(request.published / entry.name, entry)
    )
    doubtful = {entry.name for entry in suspects}
    missing = tuple(entry for entry in unproven if entry.name not in doubtful)
    if comparison.no_record and request.published.is_dir():
        names = {entry.name for entry in manifest.files}
        extra = tuple(sorted(set(proof.take(request.published)) - names))
        comparison = dataclasses.replace(comparison, extra=extra)
    return Plan(manifest, comparison, suspects, missing, sources, reasons, recorded)


def _recorded_sums(request: Request, record: dict[str, Any] | None) -> dict[str, str | None]:
    """Of another revision that is there whole: what its files hold is known without reading them."""
    try:
        was = read_manifest(request.manifest_path)
    except BadRequestError:
        return {}
    intact = proof.compare(request.published, record, was.digest).intact
    return {entry.name: entry.sha256 for entry in was.files if entry.name in intact}


def _published_manifest(
    request: Request, record: dict[str, Any] | None, sources: list[Source]
) -> Manifest | None:
    """The manifest beside the published copy, when it is of what is wanted now."""
    if record is None:
        return None
    try:
        manifest = read_manifest(request.manifest_path)
    except BadRequestError:
        return None
    if request.manifest is not None:
        return manifest if given_manifest(request, request.manifest).digest == manifest.digest else None
    asked, recorded = request_record(request), record.get("request")
    if not isinstance(recorded, dict):
        return None
    if any(asked[key] != recorded.get(key) for key in ("repo", "include", "exclude")):
        return None
    answers = (source.agrees(manifest) for source in sources)
    agreed = next((answer for answer in answers if answer is not None), None)
    if agreed is None:  # every source is away: what was asked for then is asked for now
        agreed = recorded.get("revision") == request.revision
    return manifest if agreed else None


def _wanted_or_left(request: Request, sources: list[Source], reasons: Reasons) -> Manifest:
    """From the sources; without them, the manifest that lies beside the published copy."""
    try:
        return wanted_manifest(request, sources, reasons)
    except NoSourceError:
        try:
            left = read_manifest(request.manifest_path)
        except BadRequestError:
            left = None
        if left is None or left.repo != request.repo or request.revision not in ("main", left.revision):
            raise
        return left


def request_record(request: Request) -> dict[str, Any]:
    """What was asked for, as it is kept in the proof's record."""
    return {
        "repo": request.repo,
        "revision": request.revision,
        "include": list(request.include),
        "exclude": list(request.exclude),
    }


def _could_be(path: Path, entry: FileEntry) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == entry.size_bytes


def require_possible(
    request: Request, plan: Plan, missing: tuple[FileEntry, ...], partial: Path, *, before_bytes: int = 0
) -> dict[str, str]:
    """Before the first byte: each missing file has a source, and all fits. Returns file → source."""
    found = require_sources(request, plan.manifest, list(missing), plan.sources, plan.reasons)
    asked = Asked(
        subject=request.name,
        root=request.root,
        need_bytes=before_bytes + bytes_to_come(missing, partial),
        need_files=len(missing),
        reserve_bytes=request.reserve_bytes,
    )
    there = staged(request.root)
    own = sum(one.bytes for one in there if one.model == request.name and one.is_stale(plan.manifest.digest))
    others = [one for one in there if one.model != request.name]
    require_room(asked, measure_room(request.root).after(own), others)
    return found


def bytes_to_come(missing: Iterable[FileEntry], partial: Path) -> int:
    """What the files will take in the root beyond what an unfinished copy has of them."""
    need, count = 0, 0
    for entry in missing:
        count += 1
        landed = partial / entry.name
        here = landed.lstat().st_blocks * 512 if landed.exists() else 0
        need += max(0, on_disk(entry.size_bytes or 0) - here)
    return need + records_bytes(count) if count else 0


def partial_folder(request: Request, manifest: Manifest) -> Path:
    """Where this content is put together before it gets its name."""
    return request.root / f"{request.name}.partial-{manifest.digest[:12]}"
