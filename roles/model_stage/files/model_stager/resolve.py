"""Find out what the model consists of and which source gives which file, before a byte is written."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from model_stager.errors import BadRequestError, NoSourceError, SourceUnusableError
from model_stager.manifest import FileEntry, Manifest, git_blob_id, read_manifest
from model_stager.text import count_text, some_text
from model_stager.torn import missing_parts, without_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from model_stager.origins import Origin
    from model_stager.request import Request
    from model_stager.sources import Source


@dataclass
class Reasons:
    """Why each source could not give what it was asked for, in the order of the ladder."""

    by_source: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what is odd about the model itself

    def add(self, source: Source, reason: SourceUnusableError) -> None:
        known = self.by_source.setdefault(source.label, [])
        if str(reason) not in known:
            known.append(str(reason))

    def __str__(self) -> str:
        return "; ".join(f"{label}: {some_text(reasons, 2)}" for label, reasons in self.by_source.items())

    def told(self) -> str:
        """With the notes, for a run that has come to a good end."""
        return "; ".join(filter(None, (str(self), *self.notes)))


def given_manifest(request: Request, path: Path) -> Manifest:
    """The one that the operator named, as far as its files are wanted."""
    try:
        return request.narrow(read_manifest(path))
    except SourceUnusableError as exc:
        raise BadRequestError(f"{request.name}: {path}: {exc}") from exc


def wanted_manifest(request: Request, sources: list[Source], reasons: Reasons) -> Manifest:
    """The given manifest, else that of the first source which has one."""
    if request.manifest is not None:
        return dataclasses.replace(given_manifest(request, request.manifest), model=request.name)
    for source in sources:
        try:
            return complete(dataclasses.replace(source.manifest(), model=request.name), sources, reasons)
        except SourceUnusableError as exc:  # noqa: PERF203 - one source fails, the next is asked
            reasons.add(source, exc)
    hint = ""
    if any(spec.kind == "directory" and spec.path.is_dir() for spec in request.sources):
        hint = ". Make one from a copy that you trust: python3 -m model_stager manifest create --from FOLDER"
    raise NoSourceError(f"{request.name}: no source can say what the model consists of: {reasons}{hint}")


def complete(manifest: Manifest, sources: list[Source], reasons: Reasons) -> Manifest:
    """Fill in sizes that a dangling link hides, and the sha256 of small files named by git's id."""
    if manifest.complete:
        return manifest
    entries = tuple(
        entry if entry.sha256 and entry.size_bytes is not None else _complete_entry(entry, sources, reasons)
        for entry in manifest.files
    )
    return dataclasses.replace(manifest, files=entries)


def _complete_entry(entry: FileEntry, sources: list[Source], reasons: Reasons) -> FileEntry:
    for source in sources:
        try:
            origin = source.locate(entry)
            if entry.sha256:
                return _sized(entry, origin)
            content = origin.content()
        except SourceUnusableError as exc:  # noqa: PERF203 - one source fails, the next is asked
            reasons.add(source, exc)
        except OSError as exc:
            reasons.add(source, SourceUnusableError(f"{entry.name} can't be read: {exc.strerror}"))
        else:
            git_sha1 = git_blob_id(content)
            if git_sha1 == entry.git_sha1:
                sha256 = hashlib.sha256(content).hexdigest()
                return dataclasses.replace(entry, size_bytes=len(content), sha256=sha256)
            reasons.add(
                source,
                SourceUnusableError(
                    f"{entry.name} has git blob id {git_sha1}, it should be {entry.git_sha1}"
                ),
            )
    raise SourceUnusableError(f"{entry.name} is nowhere to be had")


def _sized(entry: FileEntry, origin: Origin) -> FileEntry:
    size = origin.size_bytes()
    if size is None:
        raise SourceUnusableError(f"{entry.name} has no known size")
    return dataclasses.replace(entry, size_bytes=size)


def locate(source: Source, entry: FileEntry) -> Origin:
    """Where this source has the file; SourceUnusableError, whatever went wrong."""
    try:
        return source.locate(entry)
    except OSError as exc:
        raise SourceUnusableError(f"{entry.name}: {exc.strerror}") from exc


def _first(entry: FileEntry, sources: Iterable[Source], reasons: Reasons) -> tuple[Source, Origin] | None:
    """The best of the sources that seem to have this file."""
    for source in sources:
        try:
            return source, locate(source, entry)
        except SourceUnusableError as exc:  # noqa: PERF203 - one source fails, the next is asked
            reasons.add(source, exc)
    return None


def require_sources(
    request: Request, manifest: Manifest, missing: list[FileEntry], sources: list[Source], reasons: Reasons
) -> dict[str, str]:
    """File name → label of the first source that seems to have it; raises when a file has none."""
    found: dict[str, str] = {}
    for entry in missing:
        first = _first(entry, sources, reasons)
        if first is not None:
            found[entry.name] = first[0].label
    lost = [entry.name for entry in missing if entry.name not in found]
    if lost:
        raise NoSourceError(
            f"{request.name}: no source has {count_text(len(lost), 'file')} of {len(manifest.files)} "
            f"({some_text(lost)}): {reasons}. Leave out what is not wanted with include and exclude"
        )
    names = {entry.name for entry in manifest.files}
    indexes = [entry for entry in missing if entry.name.endswith(".safetensors.index.json")]
    lacks = missing_parts(names, _contents(indexes, sources))
    if lacks:
        raise NoSourceError(
            f"{request.name}: the model's list of files lacks {some_text(lacks)}, so no engine can load it: "
            "check include and exclude, or the download"
        )
    for config in _contents([entry for entry in missing if entry.name == "config.json"], sources):
        note = without_tokenizer(names, config)
        if note:
            reasons.notes.append(note)
    return found


def _contents(entries: list[FileEntry], sources: list[Source]) -> list[bytes]:
    """What these small files hold, where a source has them right; if none has, the copy says so."""
    found = []
    for entry in entries:
        for source in sources:
            try:
                content = locate(source, entry).content()
            except SourceUnusableError:
                continue
            if hashlib.sha256(content).hexdigest() == entry.sha256:
                found.append(content)
                break
    return found
