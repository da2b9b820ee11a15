"""What the caller wants staged, checked at the door."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path

from model_stager.errors import BadRequestError

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
REPO = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$")
KINDS = ("hf_cache", "directory")
# No engine reads these, and a download with `--include` leaves them out.
UNNEEDED = (".gitattributes", ".gitignore", "*.md", "LICENSE*", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg")


@dataclass(frozen=True)
class SourceSpec:
    """A rung of the ladder: a kind and a path."""

    kind: str
    path: Path

    @property
    def label(self) -> str:
        return "the HF cache" if self.kind == "hf_cache" else f"the directory {self.path}"


@dataclass(frozen=True)
class Request:
    """One model to be staged."""

    name: str
    root: Path
    sources: tuple[SourceSpec, ...]
    repo: str | None = None
    revision: str = "main"
    manifest: Path | None = None
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = UNNEEDED
    reserve_bytes: int = 0

    def __post_init__(self) -> None:
        if not NAME.match(self.name):
            raise BadRequestError(
                f"{self.name!r} is no name for a model: letters, digits, `.`, `_`, `-`; none of these first"
            )
        if self.repo is not None and not REPO.match(self.repo):
            raise BadRequestError(
                f"{self.name}: repo is {self.repo!r}, it should look like `organisation/model`"
            )
        if not self.sources:
            raise BadRequestError(f"{self.name}: no source is given")
        if self.repo is None and any(source.kind == "hf_cache" for source in self.sources):
            raise BadRequestError(
                f"{self.name}: a source of kind hf_cache needs the repo (`organisation/model`)"
            )

    def wants(self, file: str) -> bool:
        """Whether the file belongs to the model as asked for."""
        if not any(fnmatch.fnmatchcase(file, pattern) for pattern in self.include):
            return False
        return not any(fnmatch.fnmatchcase(file, pattern) for pattern in self.exclude)

    # The published model, and what is kept beside it.

    @property
    def published(self) -> Path:
        return self.root / self.name

    @property
    def manifest_path(self) -> Path:
        return self.root / f"{self.name}.manifest.json"

    @property
    def proof_path(self) -> Path:
        return self.root / f"{self.name}.proof.json"

    @property
    def state(self) -> Path:
        return self.root / ".model-stage" / self.name


def parse_source(text: str) -> SourceSpec:
    """`hf_cache=/root/.cache/huggingface/hub` or `directory=/models/qwen`."""
    kind, _, path = text.partition("=")
    if kind not in KINDS:
        raise BadRequestError(
            f"the source {text!r} has an unknown kind: {' or '.join(KINDS)}, as `kind=/path`"
        )
    if not path.startswith("/"):
        raise BadRequestError(f"the source {text!r} needs an absolute path, as `{kind}=/path`")
    return SourceSpec(kind, Path(path))
