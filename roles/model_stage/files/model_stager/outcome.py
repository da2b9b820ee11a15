"""What staging found and did: as a record for programs and as one line for people."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from model_stager.text import bytes_text, count_text, seconds_text, some_text

if TYPE_CHECKING:
    from pathlib import Path

    from model_stager.manifest import Manifest
    from model_stager.request import Request

SCHEMA_VERSION = 1


@dataclass
class Outcome:
    """Of one run; `action` is none (it was proven intact), rehash (proven by its sums) or stage (copied)."""

    action: str
    manifest: Manifest
    why: list[str]
    changed: bool = False
    seconds: float = 0.0
    copied_bytes: int = 0
    copied_files: int = 0
    resumed_bytes: int = 0
    by_source: dict[str, dict[str, int]] = field(default_factory=dict)
    gone_on: str = ""  # why sources before the used one could not give
    because: str = ""  # why it is not in memory
    folder: Path | None = None  # where it is served from, when not from the root
    served_from: str = ""

    def sentence(self, request: Request) -> str:
        files = count_text(len(self.manifest.files), "file")
        name, spent = request.name, seconds_text(self.seconds)
        if self.because:
            name = f"{name}: {self.because}"
        if self.folder is not None:
            proven = f"proven intact, {files}" if self.action == "none" else f"sha256 of {files} right"
            why = "" if self.action == "none" else f"{some_text(self.why, 2)}; "
            return f"{name}: served from {self.served_from} on disk ({self.folder}; {why}{proven}, {spent})"
        if self.action == "none":
            return f"{name}: already in {request.root}, proven intact ({files}, {spent})"
        why = some_text(self.why, 2)
        if self.action == "rehash":
            return f"{name}: already in {request.root}, sha256 of {files} right ({why}; {spent})"
        sources = some_text(list(self.by_source)) or "an earlier run"
        line = f"{name}: {bytes_text(self.copied_bytes)} from {sources} in {spent}, sha256 of {files} right"
        notes = [] if self.why == ["it is not there"] else [why]
        if self.copied_files < len(self.manifest.files):
            notes.append(f"{count_text(self.copied_files, 'file')} copied, the others were right")
        if self.resumed_bytes:
            notes.append(f"{bytes_text(self.resumed_bytes)} were there from an earlier run")
        if self.gone_on:
            notes.append(self.gone_on)
        return f"{line} ({'; '.join(notes)})" if notes else line

    def to_json(self, request: Request, run: str) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "run": run,
            "ok": True,
            "error": None,
            "model": request.name,
            "path": str(self.folder or request.published),
            "action": self.action,
            "changed": self.changed,
            "why": self.why,
            "digest": self.manifest.digest,
            "revision": self.manifest.revision,
            "files": len(self.manifest.files),
            "total_bytes": self.manifest.total_bytes,
            "copied_bytes": self.copied_bytes,
            "resumed_bytes": self.resumed_bytes,
            "sources": self.by_source,
            "gone_on": self.gone_on,
            "seconds": round(self.seconds, 3),
            "summary": self.sentence(request),
            "ended_at": utc_now(),
        }


def failure(
    request: Request, run: str, code: str, message: str, data: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The record of a run that failed."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run,
        "ok": False,
        "error": {"code": code, "message": message, **({"data": data} if data else {})},
        "model": request.name,
        "path": str(request.published),
        "changed": False,
        "ended_at": utc_now(),
    }


def utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
