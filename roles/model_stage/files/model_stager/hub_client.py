"""The hub by its own library: what a revision means, its files, and where the bytes of one are.

The library is asked for facts only, and watched: its requests carry the token to one server only, wait no
longer than ours, are not repeated behind our back, and their refusals read as ours. The bytes are read by our
own client, as the library's checks sizes only.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, TypeVar
from urllib.parse import urljoin

from model_stager.errors import BadRequestError, SourceFlakyError, SourceUnusableError
from model_stager.http_client import CONNECT_S
from model_stager.manifest import FileEntry, require_safe_name
from model_stager.refusals import refusal
from model_stager.text import some_text
from model_stager.urls import server, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from model_stager.secret import Token

SUITED = "2"
MISSING = (
    "the Python package huggingface_hub, which asks the hub, {found}. The role installs it on the node when "
    "a model has a source of kind hub; by hand: pip install 'huggingface_hub>=2,<3'"
)
# Set before the import, as the library reads them once: no second transfer engine, no counting of use, no
# token that it finds by itself, and no news about its own versions.
SETTINGS = (
    "HF_HUB_DISABLE_XET",
    "HF_HUB_DISABLE_TELEMETRY",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    "HF_HUB_DISABLE_UPDATE_CHECK",
)


@dataclass(frozen=True)
class Location:
    """Where the hub says that the bytes of a file are, and what it says of them."""

    url: str
    size_bytes: int | None
    etag: str | None  # sha256 of a large file, git's id of a small one


@dataclass(frozen=True)
class _Call:
    """Who asks: the library's client is one for the whole process."""

    endpoint: str
    stall_s: float
    token: Token | None


T = TypeVar("T")
_CALL: ContextVar[_Call] = ContextVar("_CALL")


class HubClient:
    """One model on one hub."""

    def __init__(self, endpoint: str, repo: str, token: Token | None, stall_s: float) -> None:
        self.endpoint = endpoint
        self.repo = repo
        self._call = _Call(endpoint, stall_s, token)
        self._library = _load()
        self._token: str | bool = token.reveal() if token else False
        self._api = self._library.HfApi(endpoint=endpoint, token=self._token)

    def commit(self, revision: str) -> str:
        """The commit that a branch or tag means now; what there is instead, when there is none."""
        with self._asking():
            try:
                sha = self._api.model_info(self.repo, revision=revision).sha
            except SourceUnusableError as exc:
                if "no such revision" not in str(exc):
                    raise
                raise SourceUnusableError(f"{exc}: {revision!r}{self._revisions()}") from exc
        if not sha:
            raise SourceUnusableError(
                f"{self.endpoint} does not say which commit {revision!r} of {self.repo} is"
            )
        return str(sha)

    def _revisions(self) -> str:
        try:
            refs = self._api.list_repo_refs(self.repo)
        except SourceUnusableError:
            return ""
        names = [ref.name for ref in (*refs.branches, *refs.tags)]
        return f" (it has {some_text(names)})" if names else ""

    def files(self, commit: str) -> list[FileEntry]:
        """The commit's files, each with size and the hash that the hub knows."""
        with self._asking():
            listed = list(self._api.list_repo_tree(self.repo, recursive=True, revision=commit))
        try:
            return [_entry(item, self.endpoint) for item in listed if hasattr(item, "blob_id")]
        except BadRequestError as exc:
            raise SourceUnusableError(str(exc)) from exc

    def locate(self, commit: str, name: str) -> Location:
        url = self._library.hf_hub_url(self.repo, name, revision=commit, endpoint=self.endpoint)
        with self._asking():
            found = self._library.get_hf_file_metadata(
                url, token=self._token, timeout=self._call.stall_s, endpoint=self.endpoint
            )
        if found.commit_hash not in (None, commit):
            raise SourceUnusableError(f"{visible(url)} is of commit {found.commit_hash}, not of {commit}")
        return Location(urljoin(url, found.location), found.size, found.etag)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        if self._library.constants.is_offline_mode():
            raise SourceUnusableError("HF_HUB_OFFLINE is set, so the hub may not be asked")
        reset = _CALL.set(self._call)
        try:
            yield
        except (self._library.errors.HFValidationError, ValueError, KeyError, TypeError) as exc:
            # Nothing of the message: the library may have put anything into it.
            raise SourceUnusableError(
                f"{self.endpoint} gives an answer that huggingface_hub can't read ({type(exc).__name__})"
            ) from None
        finally:
            _CALL.reset(reset)


def _entry(item: Any, where: str) -> FileEntry:  # noqa: ANN401 - the library's own class
    name = require_safe_name(item.path, where)
    if item.lfs is not None:
        return FileEntry(name, item.lfs.size, item.lfs.sha256)
    return FileEntry(name, item.size, None, item.blob_id)


def _load() -> Any:  # noqa: ANN401 - a module that need not be there
    """Import the library on first use: who has no source of kind hub needs none of it."""
    for name in SETTINGS:
        os.environ.setdefault(name, "1")
    try:
        import huggingface_hub  # noqa: PLC0415 - lazily, as above
        from huggingface_hub import constants, errors  # noqa: PLC0415, F401 - attributes from now on
    except ImportError as exc:
        raise SourceUnusableError(MISSING.format(found="is not installed")) from exc
    version = str(huggingface_hub.__version__)
    if version.split(".", maxsplit=1)[0] != SUITED:
        raise SourceUnusableError(MISSING.format(found=f"is of version {version}, {SUITED}.x is needed"))
    huggingface_hub.set_client_factory(_make_client)
    return huggingface_hub


def _make_client() -> Any:  # noqa: ANN401 - a class that can be defined only once the library is there
    import httpx2  # noqa: PLC0415 - comes with the library

    class WatchedClient(httpx2.Client):
        def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - passed on
            call = _CALL.get()
            try:
                return within(
                    call.stall_s + CONNECT_S, lambda: super(WatchedClient, self).send(request, **options)
                )
            except FutureTimeoutError:
                limit = call.stall_s + CONNECT_S
                where = visible(str(request.url))
                raise SourceUnusableError(f"{where} gave no whole answer in {limit:.0f} s") from None
            except httpx2.TooManyRedirects as exc:
                raise SourceUnusableError(f"{visible(str(request.url))} redirects in a circle") from exc
            except httpx2.TimeoutException as exc:
                where = visible(str(request.url))
                raise SourceUnusableError(f"{where} gave no byte for {call.stall_s:.0f} s") from exc
            except httpx2.HTTPError as exc:
                raise _no_answer(str(request.url), exc) from exc

    def watch_request(request: httpx2.Request) -> None:
        call = _CALL.get()
        if server(str(request.url)) != server(call.endpoint):
            request.headers.pop("authorization", None)
        limit = call.stall_s
        request.extensions["timeout"] = {
            "connect": min(limit, CONNECT_S),
            "read": limit,
            "write": limit,
            "pool": limit,
        }

    def watch_response(response: httpx2.Response) -> None:
        if response.status_code >= 400:  # noqa: PLR2004 - HTTP's own number
            call, url = _CALL.get(), str(response.request.url)
            sent = call.token is not None and call.token.belongs_to(url)
            raise refusal(url, response.status_code, response.headers, token_sent=sent)

    return WatchedClient(
        event_hooks={"request": [watch_request], "response": [watch_response]},
        follow_redirects=True,
        max_redirects=5,
    )


def within(seconds: float, call: Callable[[], T]) -> T:
    """The library limits each wait, not their sum: a server that sends one byte a second would hold us."""
    answer: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        try:
            answer.set_result(context.run(call))
        except BaseException as exc:  # noqa: BLE001 - raised again by the thread that waits
            answer.set_exception(exc)

    threading.Thread(target=work, name="hub", daemon=True).start()
    return answer.result(seconds)


def _no_answer(url: str, exc: Exception) -> SourceUnusableError:
    """The library's HTTP client keeps the operating system's reason as text only."""
    host, text = visible(url), str(exc)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return SourceUnusableError(
            f"the certificate of {host} can't be trusted: add its authority to the system's, or name it by "
            "SSL_CERT_FILE"
        )
    if "Name or service not known" in text or "name resolution" in text:
        return SourceUnusableError(f"the name of {host} can't be resolved: check the URL and the DNS")
    if "refused" in text:
        return SourceUnusableError(f"{host} refuses the connection: nothing listens there")
    return SourceFlakyError(f"{host} can't be reached ({type(exc).__name__})")
