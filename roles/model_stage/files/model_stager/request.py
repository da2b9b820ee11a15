"""What the caller wants staged, checked at the door."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model_stager.errors import BadRequestError, SourceUnusableError
from model_stager.urls import require_url, visible

if TYPE_CHECKING:
    from model_stager.manifest import Manifest

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
OURS = re.compile(r"\.partial-|\.(manifest|proof)\.json$")  # what the stager calls what lies beside a model
REPO = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$")
HUB = "https://huggingface.co"
STALL_S = 30.0
PATIENCE_S = 60.0
# No engine reads these, and a download with `--include` leaves them out.
UNNEEDED = (".gitattributes", ".gitignore", "*.md", "LICENSE*", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg")


@dataclass(frozen=True)
class SourceSpec:
    """A rung of the ladder: a kind, and a path or a URL."""

    kind: str
    path: Path = Path()
    url: str = ""
    name: str = ""  # of a node, or of what is absent
    reason: str = ""  # why it is absent

    @property
    def label(self) -> str:
        return {
            "hf_cache": "the HF cache",
            "directory": f"the directory {self.path}",
            "http": f"the server {visible(self.url)}",
            "peer": f"the node {self.name}",
            "hub": f"the hub {visible(self.url)}",
            "absent": self.name,
        }[self.kind]


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
    token_file: Path | None = None  # for the hub
    stall_s: float = STALL_S  # without a byte for so long, a source is left for the next
    patience_s: float = PATIENCE_S  # how long a source that is busy is asked again

    def __post_init__(self) -> None:
        if not NAME.match(self.name):
            raise BadRequestError(
                f"{self.name!r} is no name for a model: letters, digits, `.`, `_`, `-`; none of these first"
            )
        if OURS.search(self.name):
            raise BadRequestError(
                f"{self.name!r} is no name for a model: the stager has files and folders of such names"
            )
        if self.repo is not None and not REPO.match(self.repo):
            raise BadRequestError(
                f"{self.name}: repo is {self.repo!r}, it should look like `organisation/model`"
            )
        if not self.sources:
            raise BadRequestError(f"{self.name}: no source is given")
        for kind in ("hf_cache", "hub"):
            if self.repo is None and any(source.kind == kind for source in self.sources):
                raise BadRequestError(
                    f"{self.name}: a source of kind {kind} needs the repo (`organisation/model`)"
                )

    def wants(self, file: str) -> bool:
        """Whether the file belongs to the model as asked for."""
        if not any(fnmatch.fnmatchcase(file, pattern) for pattern in self.include):
            return False
        return not any(fnmatch.fnmatchcase(file, pattern) for pattern in self.exclude)

    def choose(self, manifest: Manifest) -> Manifest:
        """Its files that belong to the model as asked for."""
        files = tuple(entry for entry in manifest.files if self.wants(entry.name))
        if not files:
            of = f" of {manifest.revision[:12]}" if manifest.revision else ""
            raise SourceUnusableError(
                f"none of the {len(manifest.files)} files{of} is wanted (include, exclude)"
            )
        return dataclasses.replace(manifest, files=files)

    def narrow(self, manifest: Manifest) -> Manifest:
        """Of a list that somebody has chosen already, only what the request itself says is left out."""
        chosen = (self.include, self.exclude) == (("*",), UNNEEDED)
        return manifest if chosen else self.choose(manifest)

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
    """`hf_cache=/root/.cache/huggingface/hub`, `directory=/models/qwen`, `http=http://host/qwen`, `hub`.

    For a program that knows other nodes: `peer=NAME=URL`, and `absent=NAME=REASON` for what it left out.
    """
    kind, _, value = text.partition("=")
    if kind in ("hf_cache", "directory"):
        if not value.startswith("/"):
            raise BadRequestError(f"the source {text!r} needs an absolute path, as `{kind}=/path`")
        return SourceSpec(kind, Path(value))
    if kind == "http":
        return SourceSpec(kind, url=require_url(value, "http=http://host:port/model"))
    if kind == "hub":
        endpoint = value or os.environ.get("HF_ENDPOINT") or HUB
        return SourceSpec(kind, url=require_url(endpoint, "hub=https://host"))
    name, _, rest = value.partition("=")
    if kind == "peer":
        return SourceSpec(kind, url=require_url(rest, "peer=name=http://host:port/model"), name=name)
    if kind == "absent" and name and rest:
        return SourceSpec(kind, name=name, reason=rest)
    raise BadRequestError(
        f"the source {text!r} has an unknown kind: hf_cache=/path, directory=/path, http=URL or hub"
    )
