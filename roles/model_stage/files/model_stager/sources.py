"""The ladder of sources: each can say what the model consists of, and where a file of it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Protocol

from model_stager.answering import Answering
from model_stager.errors import BadRequestError, SourceUnusableError
from model_stager.hf_cache import HfCache, read_tree
from model_stager.manifest import FileEntry, Manifest, read_manifest, sorted_entries
from model_stager.origins import LocalFile
from model_stager.torn import require_sound

if TYPE_CHECKING:
    from model_stager.origins import Origin
    from model_stager.request import Request, SourceSpec


class Source(Protocol):
    """A rung of the ladder. Each method raises SourceUnusableError with its reason."""

    label: str

    def agrees(self, manifest: Manifest) -> bool | None:
        """Whether this manifest is what the request means here; None when the source can't tell."""

    def manifest(self) -> Manifest:
        """What the model consists of, as far as this source knows."""

    def locate(self, entry: FileEntry) -> Origin:
        """Where the bytes are that can be this entry's."""


class HfCacheSource:
    """The cache that huggingface_hub keeps."""

    def __init__(self, request: Request, spec: SourceSpec) -> None:
        self.label = spec.label
        self._request = request
        self._path = spec.path
        self._opened: tuple[HfCache, str] | None = None

    def _open(self) -> tuple[HfCache, str]:
        """The branch means the same commit to the end, also when a download moves it meanwhile."""
        if self._opened is None:
            cache = HfCache(self._path, self._request.repo or "")
            self._opened = cache, cache.commit(self._request.revision)
        return self._opened

    def agrees(self, manifest: Manifest) -> bool | None:
        try:
            return self._open()[1] == manifest.revision
        except SourceUnusableError:
            return None

    def manifest(self) -> Manifest:
        cache, commit = self._open()
        tree = cache.tree(commit)
        entries = cache.entries(commit) if tree is None else tree
        origin = "hf_blobs" if tree is None else "hf_tree"
        request = self._request
        manifest = request.choose(
            Manifest(request.name, request.repo, commit, origin, sorted_entries(entries))
        )
        nameless = [entry.name for entry in manifest.files if not entry.sha256 and not entry.git_sha1]
        if nameless:
            raise SourceUnusableError(
                f"no checksum is known for {nameless[0]}: it is a plain file, not a link to a blob"
            )
        return manifest

    def locate(self, entry: FileEntry) -> Origin:
        cache, commit = self._open()
        path = cache.locate(commit, entry)
        require_sound(path, entry)
        return LocalFile(path)


class DirectorySource:
    """A folder with the model's files: a disk, an NFS mount, another stager's copy."""

    def __init__(self, request: Request, spec: SourceSpec) -> None:
        self.label = spec.label
        self._request = request
        self._path = spec.path

    def agrees(self, manifest: Manifest) -> bool | None:
        try:
            own = self.manifest()
        except SourceUnusableError:
            return None
        return own.digest == manifest.digest if own.complete else own.revision == manifest.revision

    def manifest(self) -> Manifest:
        """Kept beside the folder by `manifest create`, or by `hf download --local-dir` inside it."""
        self._require_folder()
        beside = self._path.with_name(f"{self._path.name}.manifest.json")
        if beside.is_file():
            try:
                return self._request.narrow(read_manifest(beside))
            except BadRequestError as exc:
                raise SourceUnusableError(str(exc)) from exc
        for tree in sorted((self._path / ".cache" / "huggingface" / "trees").glob("*.json")):
            wanted = [entry for entry in read_tree(tree) or [] if self._request.wants(entry.name)]
            if wanted and self._request.revision in ("main", tree.stem):
                name, repo = self._request.name, self._request.repo
                return Manifest(name, repo, tree.stem, "hf_tree", sorted_entries(wanted))
        raise SourceUnusableError(f"there is no manifest {beside}")

    def locate(self, entry: FileEntry) -> Origin:
        self._require_folder()
        path = self._path / entry.name
        if path.is_symlink() and not path.exists():
            raise SourceUnusableError(f"{entry.name} is a dangling link to {path.readlink()}")
        if not path.is_file():
            raise SourceUnusableError(f"it has no {entry.name}")
        require_sound(path, entry)
        return LocalFile(path)

    def _require_folder(self) -> None:
        if not self._path.is_dir():
            what = "is no folder" if self._path.exists() else "does not exist"
            raise SourceUnusableError(f"{self._path} {what}")


class AbsentSource:
    """What whoever asks could not name, kept in its place so that the reasons tell of it."""

    def __init__(self, _request: Request, spec: SourceSpec) -> None:
        self.label = spec.label
        self._reason = spec.reason

    def agrees(self, _manifest: Manifest) -> bool | None:
        return None

    def manifest(self) -> Manifest:
        raise SourceUnusableError(self._reason)

    def locate(self, _entry: FileEntry) -> Origin:
        raise SourceUnusableError(self._reason)


def _http(request: Request, spec: SourceSpec) -> Source:
    from model_stager.http_source import HttpSource  # noqa: PLC0415 - a proof from the disk needs no network

    return HttpSource(request, spec)


def _hub(request: Request, spec: SourceSpec) -> Source:
    from model_stager.hub_source import HubSource  # noqa: PLC0415 - as above

    return HubSource(request, spec)


def _local(kind: Callable[[Request, SourceSpec], Source]) -> Callable[[Request, SourceSpec], Source]:
    """A disk may be a mount that hangs."""
    return lambda request, spec: Answering(kind(request, spec), request.stall_s)


KINDS: dict[str, Callable[[Request, SourceSpec], Source]] = {
    "hf_cache": _local(HfCacheSource),
    "directory": _local(DirectorySource),
    "http": _http,
    "peer": _http,
    "hub": _hub,
    "absent": AbsentSource,
}


def open_sources(request: Request) -> list[Source]:
    """The ladder in its order; a source is looked at only when its turn comes."""
    return [KINDS[spec.kind](request, spec) for spec in request.sources]
