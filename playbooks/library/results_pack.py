"""List the benchmark results of this machine and pack those that the controller lacks."""

from __future__ import annotations

DOCUMENTATION = """
module: results_pack
short_description: Lists benchmark results and packs what the controller lacks
description:
  - Walks the campaigns below I(root), hashes every file, and writes those that differ from I(known) into an
    uncompressed tar archive together with C(manifest.json), the list of everything that is there.
  - Reads only. The archive is a temporary file that the caller fetches and removes; archives that an
    interrupted call left behind are removed after an hour.
  - A campaign may be running meanwhile. Cells are read before their journal, so that the journal knows every
    cell in the archive, and a file that grows is packed up to the size at which it was hashed.
options:
  root: {description: Folder with a folder for each campaign., type: path, required: true}
  known:
    description: JSON text with what the controller has, as C({campaign, {path, sha256}}).
    type: str
    default: "{}"
  scratch: {description: Where the archive is written., type: path, default: /var/tmp}
attributes:
  check_mode: {description: Lists and says what would be packed; writes no archive., support: full}
  diff_mode: {support: none}
"""

EXAMPLES = """
- name: Pack the results
  results_pack:
    root: /var/lib/bench
    known: '{"lab-small": {"journal.jsonl": "9f86d08…"}}'
  register: packed
"""

RETURN = """
archive: {description: Path of the archive; empty in check mode., type: str, returned: always}
campaigns: {description: Names of the campaigns found., type: list, returned: always}
files: {description: How many files there are., type: int, returned: always}
packed: {description: How many of them the controller lacks., type: int, returned: always}
packed_bytes: {description: Their size., type: int, returned: always}
"""

import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from ansible.module_utils.basic import AnsibleModule

PREFIX = "recover-and-bench-results-"
LEFTOVER_AGE_S = 3600
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
# In this order, after companions and cells: what speaks about them.
LAST = ("plan.yml", "journal.jsonl", "status.json", "STATUS.md")


def campaign_folders(root: Path) -> list[Path]:
    """Folders below the root that can be campaigns; what else lies there is none of ours."""
    if not root.is_dir():
        return []
    return [p for p in sorted(root.iterdir()) if NAME.match(p.name) and p.is_dir() and not p.is_symlink()]


def campaign_files(folder: Path) -> list[str]:
    """Relative paths of a campaign's plain files, in the order in which they may be read while it runs."""
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if NAME.match(name))
        for name in files:
            path = Path(parent, name)
            if NAME.match(name) and not name.endswith(".partial") and not path.is_symlink():
                found.append(path.relative_to(folder).as_posix())
    return sorted(found, key=lambda path: (LAST.index(path) if path in LAST else -1, path))


class Beginning(io.RawIOBase):
    """The first bytes of a file that may be growing, hashed on their way."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        super().__init__()
        self.source, self.left, self.digest = source, size, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.source.read(self.left if size < 0 else min(size, self.left))
        self.left -= len(data)
        self.digest.update(data)
        return data

    def sha256(self) -> str:
        while self.read(1 << 20):
            pass
        return self.digest.hexdigest()


def pack(root: Path, known: dict[str, Any], archive: tarfile.TarFile | None) -> dict[str, Any]:
    """Put what is not known into the archive; without one, only look. Returns the sums."""
    manifest: dict[str, dict[str, Any]] = {}
    files = packed = packed_bytes = 0
    for folder in campaign_folders(root):
        listed = manifest.setdefault(folder.name, {})
        for path in campaign_files(folder):
            try:
                source = (folder / path).open("rb")
            except FileNotFoundError:
                continue  # replaced or put aside since it was listed; the next pull sees it
            with source:
                size = os.fstat(source.fileno()).st_size
                digest = Beginning(source, size).sha256()
                listed[path] = {"size": size, "sha256": digest}
                files += 1
                if known.get(folder.name, {}).get(path) == digest:
                    continue
                packed += 1
                packed_bytes += size
                if archive is not None:
                    source.seek(0)
                    archive.addfile(member(f"{folder.name}/{path}", size), Beginning(source, size))
    if archive is not None:
        text = json.dumps(manifest, sort_keys=True).encode()
        archive.addfile(member("manifest.json", len(text)), io.BytesIO(text))
    return {"campaigns": sorted(manifest), "files": files, "packed": packed, "packed_bytes": packed_bytes}


def member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info


def remove_leftovers(scratch: Path) -> None:
    """Drop archives of calls that were interrupted before they were fetched; a fresh one may be in use."""
    for path in scratch.glob(f"{PREFIX}*.tar"):
        status = path.lstat()
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime > LEFTOVER_AGE_S:
            path.unlink()


def write_archive(root: Path, known: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Pack into a new file that only the caller's user can read."""
    handle, name = tempfile.mkstemp(prefix=PREFIX, suffix=".tar", dir=scratch)
    try:
        with os.fdopen(handle, "wb") as out, tarfile.open(fileobj=out, mode="w") as archive:
            return {"archive": name, **pack(root, known, archive)}
    except BaseException:
        Path(name).unlink()
        raise


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "known": {"type": "str", "default": "{}"},
            "scratch": {"type": "path", "default": "/var/tmp"},  # noqa: S108 - mkstemp makes the name
        },
        supports_check_mode=True,
    )
    root, scratch = Path(module.params["root"]), Path(module.params["scratch"])
    try:
        known = json.loads(module.params["known"])
    except ValueError as exc:
        module.fail_json(msg=f"known is no JSON text: {exc}")
    try:
        if module.check_mode:
            result = {"archive": "", **pack(root, known, None)}
        else:
            remove_leftovers(scratch)
            result = write_archive(root, known, scratch)
    except OSError as exc:
        module.fail_json(msg=f"results in {root} could not be packed: {exc.filename}: {exc.strerror}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
