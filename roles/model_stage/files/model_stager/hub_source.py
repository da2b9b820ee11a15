"""The hub as the last rung: the library says what and where, our own reader brings the bytes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from model_stager.errors import SourceUnusableError
from model_stager.hf_cache import COMMIT
from model_stager.http_client import HttpClient
from model_stager.hub_client import HubClient, Location
from model_stager.manifest import SHA256, FileEntry, Manifest, sorted_entries
from model_stager.remote_file import RemoteFile, patiently
from model_stager.secret import Token, read_token
from model_stager.text import some_text
from model_stager.urls import below, server, visible

if TYPE_CHECKING:
    from model_stager.origins import Origin
    from model_stager.request import Request, SourceSpec


class HubSource:
    """One revision, pinned to the commit that it meant when it was first asked for."""

    def __init__(self, request: Request, spec: SourceSpec) -> None:
        self.label = spec.label
        self._request = request
        self._endpoint = spec.url
        self._http = HttpClient(request.stall_s)
        self._token: Token | None = None
        self._hub: HubClient | None = None
        self._commit = ""
        self._tree: dict[str, FileEntry] = {}
        self._failed: SourceUnusableError | None = None
        self._files: dict[str, RemoteFile] = {}
        self._lock = threading.RLock()

    def agrees(self, manifest: Manifest) -> bool | None:
        """A commit that is named in full need not be asked for."""
        if COMMIT.match(self._request.revision):
            return manifest.revision == self._request.revision
        try:
            return self._pin()[1] == manifest.revision
        except SourceUnusableError:
            return None

    def manifest(self) -> Manifest:
        _, commit = self._pin()
        request, entries = self._request, sorted_entries([*self._list().values()])
        return request.choose(Manifest(request.name, request.repo, commit, "hf_tree", entries))

    def locate(self, entry: FileEntry) -> Origin:
        with self._lock:
            hub, commit = self._pin()
            listed = self._list().get(entry.name)
            if listed is None:
                has = some_text(sorted(self._tree))
                raise SourceUnusableError(
                    f"{entry.name} is not in {hub.repo} at {commit[:12]} (it has {has})"
                )
            _require_same(entry, listed, commit)
            if entry.name not in self._files:
                self._files[entry.name] = self._look(hub, commit, listed)
            return self._files[entry.name]

    def _look(self, hub: HubClient, commit: str, listed: FileEntry) -> RemoteFile:
        address = HubAddress(hub, commit, listed, self._token)
        if not self._files:  # who may not have one file may have none: known before the first byte
            try:
                patiently(address.current, self._request.patience_s)
            except SourceUnusableError as exc:
                self._failed = exc
                raise
        return RemoteFile(self._http, address, listed, self._request.patience_s, ranges=True)

    def _pin(self) -> tuple[HubClient, str]:
        """Ask once; what failed then is not asked again for every file."""
        with self._lock:
            if self._failed is not None:
                raise self._failed
            try:
                if self._hub is None:
                    self._hub = self._open()
                hub, revision = self._hub, self._request.revision
                if not self._commit:
                    self._commit = patiently(lambda: hub.commit(revision), self._request.patience_s)
            except SourceUnusableError as exc:
                self._failed = exc
                raise
            return self._hub, self._commit

    def _open(self) -> HubClient:
        path = self._request.token_file
        self._token = read_token(path, self._endpoint) if path else None
        return HubClient(self._endpoint, self._request.repo or "", self._token, self._request.stall_s)

    def _list(self) -> dict[str, FileEntry]:
        hub, commit = self._pin()
        with self._lock:
            if not self._tree:
                listed = patiently(lambda: hub.files(commit), self._request.patience_s)
                self._tree = {entry.name: entry for entry in listed}
            return self._tree


class HubAddress:
    """Where the hub sends us for one file; looked up when needed, and again when its time is over."""

    def __init__(self, hub: HubClient, commit: str, entry: FileEntry, token: Token | None) -> None:
        self.token = token
        self._hub = hub
        self._commit = commit
        self._entry = entry
        self._location: Location | None = None
        self._lock = threading.Lock()

    @property
    def shown(self) -> str:
        return visible(
            below(f"{self._hub.endpoint}/{self._hub.repo}/resolve/{self._commit}", self._entry.name)
        )

    def current(self) -> str:
        with self._lock:
            if self._location is None:
                self._location = self._require_right(self._hub.locate(self._commit, self._entry.name))
            return self._location.url

    def renew(self, used: str) -> bool:
        """Only a location on another server is signed; the hub's own refusal is a refusal."""
        if server(used) == server(self._hub.endpoint):
            return False
        with self._lock:
            if self._location is not None and self._location.url == used:
                self._location = None
            return True

    def _require_right(self, found: Location) -> Location:
        entry = self._entry
        if None not in (found.size_bytes, entry.size_bytes) and found.size_bytes != entry.size_bytes:
            raise SourceUnusableError(
                f"{self.shown} has {found.size_bytes} bytes by its head, {entry.size_bytes} by the hub's list"
            )
        if found.etag and SHA256.match(found.etag) and entry.sha256 and found.etag != entry.sha256:
            raise SourceUnusableError(
                f"{self.shown} has sha256 {found.etag} by its head, {entry.sha256} by the hub's list"
            )
        return found


def _require_same(entry: FileEntry, listed: FileEntry, commit: str) -> None:
    """Fifty gigabytes of another version need not be read to know that they are another version."""
    for what, wanted, found in (
        ("sha256", entry.sha256, listed.sha256),
        ("git blob id", entry.git_sha1, listed.git_sha1),
        ("size", entry.size_bytes, listed.size_bytes),
    ):
        if wanted is not None and found is not None and wanted != found:
            raise SourceUnusableError(
                f"{entry.name} has {what} {found} at {commit[:12]}, the manifest says {wanted}"
            )
