"""Take fetched files in: verified, whole, and never over something different without keeping that.

The node's journal is the truth: it only grows, and it names the digest of every cell file. So a cell file
that changed is believed when the journal says that this version was written last, and put aside otherwise.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from collector.campaigns import FOLDER_NAME, read_journal
from collector.publish import put_aside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from collector.campaigns import Journal
    from collector.layout import Layout

JOURNAL = "journal.jsonl"
# Derived from the journal, so an older version holds nothing that the journal doesn't.
DERIVED = ("status.json", "STATUS.md")
LAST = (JOURNAL, *DERIVED)
CELL_OF_FILE = re.compile(r"(cells/[^/]+\.r[0-9]+)\.")


@dataclass(frozen=True)
class Listed:
    """A file of a campaign as its node lists it; ``at`` is where its bytes are, if they were sent."""

    size_bytes: int
    sha256: str
    at: Path | None = None


@dataclass
class Intake:
    """What came of one campaign."""

    node: str
    campaign: str
    new: int = 0
    updated: int = 0
    unchanged: int = 0
    new_bytes: int = 0
    conflicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Conflict(Exception):  # noqa: N818 - it is a finding, not an error
    """What came differs from what is here in a way that no honest node makes."""


class NotYet(Exception):  # noqa: N818 - as above
    """A cell's file is there before the journal's line about it: the runner is between the two."""


def known_files(folder: Path) -> dict[str, str]:
    """Relative path and sha256 of every file of a campaign that is here."""
    return {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    }


def file_sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def take_in(layout: Layout, node: str, campaign: str, listed: Mapping[str, Listed]) -> Intake:
    """Install a campaign's files. What can't be believed goes to the quarantine and is named."""
    return _Taking(layout, node, campaign, listed).run()


class _Taking:
    """One campaign being taken in."""

    def __init__(self, layout: Layout, node: str, campaign: str, listed: Mapping[str, Listed]) -> None:
        self.layout = layout
        self.folder = layout.raw / node / campaign
        self.listed = listed
        self.result = Intake(node, campaign)
        self.had = known_files(self.folder)

    def run(self) -> Intake:
        sent = {path: file for path, file in self.listed.items() if file.at is not None}
        for path in list(sent):
            problem = _damage(path, sent[path])
            if problem:
                self._refuse([path], problem)
                del sent[path]
        try:
            self._require_same_history(sent)
        except Conflict as exc:
            self._refuse(sent, str(exc))
            return self.result
        journal = self._journal(sent)
        for cell, group in _groups(sent):
            try:
                self._require_believable(cell, group, journal)
            except NotYet as exc:
                self.result.notes.append(f"{exc} is being written; the next pull takes it")
                continue
            except Conflict as exc:
                self._refuse(group, str(exc))
                continue
            self._set_aside_changed(cell, group, journal)
            for path in group:
                self._install(path, sent[path])
        self.result.unchanged = sum(self.had.get(path) == file.sha256 for path, file in self.listed.items())
        self._count_missing()
        return self.result

    def _require_same_history(self, sent: dict[str, Listed]) -> None:
        """The journal here must be the beginning of the one that came, line by line."""
        if JOURNAL not in sent or JOURNAL not in self.had:
            return
        source = sent[JOURNAL].at
        assert source is not None  # noqa: S101 - only sent files are looked at
        here, there = _lines(self.folder / JOURNAL), _lines(source)
        if here == there[: len(here)]:
            return
        if there == here[: len(there)]:
            raise Conflict(f"the node's journal has {len(there)} events, here are {len(here)} already")
        if here[0] != there[0]:
            self._keep_earlier(sent)
            return
        first = next(i for i, (a, b) in enumerate(zip(here, there, strict=False), 1) if a != b)
        raise Conflict(f"the node's journal says something else than before from event {first} on")

    def _keep_earlier(self, sent: dict[str, Listed]) -> None:
        """The campaign was started anew on the node under its old id: keep what was here, whole."""
        stamp = hashlib.sha256(_lines(self.folder / JOURNAL)[0]).hexdigest()[:12]
        target = self.layout.earlier / self.result.node / self.result.campaign / stamp
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise Conflict(f"{self.layout.relative(target)} is in the way of keeping the earlier campaign")
        self.folder.rename(target)
        # What the new campaign has byte for byte as the old one was not sent again; it is taken from there.
        for path, file in self.listed.items():
            if path not in sent and self.had.get(path) == file.sha256:
                sent[path] = Listed(file.size_bytes, file.sha256, target / path)
        self.had = {}
        self.result.notes.append(
            f"started anew on the node; the earlier campaign is kept in {self.layout.relative(target)}"
        )

    def _journal(self, sent: Mapping[str, Listed]) -> Journal:
        file = sent.get(JOURNAL)
        return read_journal(file.at if file and file.at else self.folder / JOURNAL)

    def _require_believable(self, cell: str, group: list[str], journal: Journal) -> None:
        """A cell that differs from the one here must be the one that the journal says was written last."""
        changed = [path for path in group if path in self.had and self.had[path] != self.listed[path].sha256]
        if not changed or not cell:
            return
        name, short = f"{cell}.json", PurePosixPath(cell).name
        if name in changed and _written_last(journal).get(short) == self.listed[name].sha256:
            return
        last = journal.last_word.get(short)
        if last is not None and last.event == "cell_started":
            raise NotYet(short)
        raise Conflict("it differs from the file here, and the journal knows of no new attempt")

    def _install(self, path: str, file: Listed) -> None:
        assert file.at is not None  # noqa: S101 - only sent files are installed
        if self.had.get(path) == file.sha256:
            return
        if path in self.had:
            self.result.updated += 1
        else:
            self.result.new += 1
        self.result.new_bytes += file.size_bytes
        self._copy(file.at, self.folder / path)

    def _set_aside_changed(self, cell: str, group: list[str], journal: Journal) -> None:
        """Keep what is about to be replaced, unless the node keeps it itself."""
        on_node = {file.sha256 for file in self.listed.values()}
        changed = [path for path in group if path in self.had and self.had[path] != self.listed[path].sha256]
        lost = [path for path in changed if path not in LAST and self.had[path] not in on_node]
        written = {event.sha256 for event in journal.events}
        own = self.had.get(f"{cell}.json", "")
        if cell and own and own not in written:
            reason = "it was changed here since it came: the journal knows of no such version"
            for path in lost:
                kept = self._quarantine(path, self.folder / path, self.had[path], reason)
                self.result.notes.append(f"{path}: {reason}; kept as {kept}")
            return
        for path in lost:
            self._keep_version(path, cell, mark=(own or self.had[path])[:12])

    def _keep_version(self, path: str, cell: str, *, mark: str) -> None:
        """Under names as the runner gives them: ``<cell>.<mark>.json``, its companions likewise."""
        name, stem = PurePosixPath(path).name, PurePosixPath(cell).name
        kept = f"{stem}.{mark}{name[len(stem) :]}" if cell else f"{name}.{mark}"
        target = self.layout.superseded / self.result.node / self.result.campaign / kept
        self._copy(self.folder / path, target)

    def _copy(self, source: Path, target: Path) -> None:
        """Without an fsync: the next pull sees by its digest what a power cut tore, and fetches it again."""
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.partial")
        shutil.copyfile(source, temporary)
        temporary.replace(target)

    def _refuse(self, paths: Iterable[str], reason: str) -> None:
        for path in paths:
            file = self.listed[path]
            if file.at is not None:
                kept = self._quarantine(path, file.at, file.sha256, reason)
                self.result.conflicts.append(f"{path}: {reason}; put aside as {kept}")

    def _quarantine(self, path: str, source: Path, digest: str, reason: str) -> str:
        origin = f"{self.result.node}:{self.result.campaign}/{path}"
        folder = self.layout.quarantine / "incoming" / self.result.node / self.result.campaign
        target = folder / f"{path}.{digest[:12]}" if _safe(path) else folder / digest
        put_aside(target, source, origin=origin, reason=reason, sha256=digest)
        return self.layout.relative(target)

    def _count_missing(self) -> None:
        gone = [path for path in self.had if path not in self.listed]
        if gone:
            self.result.notes.append(
                f"{len(gone)} files are here and no longer on the node, such as {gone[0]}"
            )


def _damage(path: str, file: Listed) -> str:
    if not _safe(path):
        return "its name is no plain relative path"
    assert file.at is not None  # noqa: S101 - only sent files are looked at
    size = file.at.stat().st_size
    if size != file.size_bytes:
        return f"{size} of {file.size_bytes} bytes arrived"
    if file_sha256(file.at) != file.sha256:
        return "its sha256 is not the one that the node gave"
    return ""


def _safe(path: str) -> bool:
    return all(FOLDER_NAME.fullmatch(part) for part in path.split("/"))


def _groups(sent: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Files that stand or fall together, with the cell they are of; the journal comes after the cells."""
    groups: dict[str, list[str]] = {}
    cells: dict[str, str] = {}
    for path in sent:
        match = CELL_OF_FILE.match(path)
        key = match[1] if match else path
        cells[key] = match[1] if match else ""
        groups.setdefault(key, []).append(path)
    order = sorted(groups, key=lambda key: (LAST.index(key) if key in LAST else -1, key))
    # A cell's own file after its companions: once it is there, they are.
    return [(cells[key], sorted(groups[key], key=lambda path: path.endswith(".json"))) for key in order]


def _written_last(journal: Journal) -> dict[str, str]:
    """The digest of the file that each cell ended with, or was skipped with."""
    return {event.cell: event.sha256 for event in journal.events if event.cell and event.sha256}


def _lines(path: Path) -> list[bytes]:
    """The whole, readable lines: a runner drops torn ones when it repairs its journal."""
    *lines, _unfinished = path.read_bytes().split(b"\n")
    return [line for line in lines if _readable(line)]


def _readable(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
