"""One file on its way through the copying crew, from sources that fail in the ways that tests ask for."""

import random
import threading

from model_stager.copying import Copying
from model_stager.errors import RangeIgnoredError
from model_stager.inspection import BadFiles
from model_stager.manifest import FileEntry, hash_file
from model_stager.origins import LocalFile
from model_stager.parts import PartJournal
from model_stager.resolve import Reasons
from model_stager.tally import Tally
from model_stager.transfer import Transfer
from model_stager.workers import Crew

MB = 1 << 20


def write_weights(path, size, seed=3):
    path.write_bytes(random.Random(seed).randbytes(size))  # noqa: S311 - no secret
    return FileEntry(path.name, *hash_file(path))


class Given:
    """A source that has one file."""

    def __init__(self, label, origin):
        self.label = label
        self._origin = origin
        self.asked = 0

    def locate(self, entry):  # noqa: ARG002 - it has only one
        self.asked += 1
        return self._origin


class Network(LocalFile):
    """A local file's bytes as a server would give them: no path, and what `on_read` makes of them."""

    def __init__(self, path, on_read=None, *, ranges=True):
        super().__init__(path)
        self._file, self.path = path, None
        self.where = f"http://server/{path.name}"
        self._on_read = on_read
        self.claimed = ranges
        self.ranges = True
        self.opened = []

    def open(self, start, end):
        self.opened.append((start, end))
        if start and not self.claimed:
            self.ranges = False
            raise RangeIgnoredError("can only be had from its start")
        self.path = self._file
        reader = super().open(start, end)
        self.path = None
        return Through(reader, start, self._on_read)


class Through:
    """Calls on_read(position, view) before each read: it may raise, wait, or shorten the view."""

    def __init__(self, reader, position, on_read):
        self._reader = reader
        self._position = position
        self._on_read = on_read
        self.forget = reader.forget
        self.close = reader.close

    def readinto(self, view):
        if self._on_read:
            view = self._on_read(self._position, view) or view
        got = self._reader.readinto(view)
        self._position += got
        return got


class Kit:
    """Runs of the crew over one file, in one folder; a run begins where the one before has ended."""

    def __init__(self, folder, entry):
        self.folder = folder
        self.entry = entry
        self.target = folder / "landed" / entry.name
        self.stop = threading.Event()
        self.bad_files = BadFiles(folder / "bad", folder, 0)

    def run(self, *sources, threads=2, stall_s=30.0, patience_s=60.0):
        self.reasons, self.tally = Reasons(), Tally(self.entry.size_bytes)
        journal = PartJournal(self.folder / "journal.jsonl", "digest")
        crew = Crew(threads, self.stop, stall_s)
        copying = Copying(
            [Transfer(self.entry, sources, self.reasons, patience_s)],
            crew,
            folder=self.folder / "landed",
            journal=journal,
            tally=self.tally,
            reasons=self.reasons,
            bad_files=self.bad_files,
            durable=False,
        )
        try:
            crew.run(copying)
        finally:
            copying.close()
            journal.close()
        return self

    def bytes_of(self, label):
        return self.tally.by_source[label]["bytes"]
