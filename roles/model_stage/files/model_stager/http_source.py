"""A folder with the model's files on a web server; another node's `serve` looks the same."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from model_stager.errors import BadRequestError, SourceFlakyError, SourceUnusableError
from model_stager.http_client import HttpClient
from model_stager.manifest import FileEntry, Manifest, parse_manifest
from model_stager.origins import SMALL
from model_stager.refusals import SilentError
from model_stager.remote_file import FixedAddress, RemoteFile, patiently, require_identity
from model_stager.urls import below, visible

if TYPE_CHECKING:
    from model_stager.origins import Origin
    from model_stager.request import Request, SourceSpec

NO_HEAD = (405, 501)  # a server that knows only GET


class HttpSource:
    """A server that is away is asked once, not once for each file."""

    def __init__(self, request: Request, spec: SourceSpec) -> None:
        self.label = spec.label
        self._request = request
        self._base = spec.url
        self._client = HttpClient(request.stall_s)
        self._files: dict[FileEntry, RemoteFile] = {}
        self._away: SourceUnusableError | None = None
        self._lock = threading.Lock()

    def agrees(self, manifest: Manifest) -> bool | None:
        try:
            return self.manifest().digest == manifest.digest
        except SourceUnusableError:
            return None

    def manifest(self) -> Manifest:
        """Beside the folder, as `manifest create` puts it and as `serve` gives it."""
        return self._request.narrow(patiently(self._read_manifest, self._request.patience_s))

    def _read_manifest(self) -> Manifest:
        url = f"{self._base}.manifest.json"
        with self._lock:
            self._require_there()
            try:
                answer = self._client.ask(url, {})
                try:
                    answer.require_success()
                    require_identity(answer)
                    content = answer.read(SMALL)
                finally:
                    answer.close()
            except SourceUnusableError as exc:
                self._note(exc)
                raise
        try:
            return parse_manifest(json.loads(content), visible(url))
        except BadRequestError as exc:
            raise SourceUnusableError(str(exc)) from exc
        except ValueError as exc:
            raise SourceUnusableError(f"{visible(url)} is no JSON ({exc})") from exc

    def locate(self, entry: FileEntry) -> Origin:
        with self._lock:
            known = self._files.get(entry)
            if known is None:
                known = self._files[entry] = self._look(entry)
            return known

    def _look(self, entry: FileEntry) -> RemoteFile:
        """Ask for the head of the file, so that a missing one is known before the first byte."""
        self._require_there()
        url = below(self._base, entry.name)
        ranges = True
        try:
            answer = self._client.ask(url, {}, method="HEAD")
            answer.close()
            if answer.status not in NO_HEAD:
                answer.require_success()
                require_identity(answer)
                _require_size(entry, answer.headers.get("Content-Length"), visible(url))
                ranges = answer.headers.get("Accept-Ranges") != "none"
        except SourceFlakyError as exc:
            if not self._client.has_answered(url):
                self._note(exc)
                raise
        except SourceUnusableError as exc:
            self._note(exc)
            raise
        return RemoteFile(self._client, FixedAddress(url), entry, self._request.patience_s, ranges=ranges)

    def _require_there(self) -> None:
        if self._away is not None:
            raise self._away

    def _note(self, exc: SourceUnusableError) -> None:
        if isinstance(exc, SilentError) or not self._client.has_answered(self._base):
            self._away = exc


def _require_size(entry: FileEntry, length: str | None, where: str) -> None:
    if length and length.isdigit() and entry.size_bytes not in (None, int(length)):
        raise SourceUnusableError(
            f"{entry.name} has {length} bytes at {where}, the manifest says {entry.size_bytes}"
        )
