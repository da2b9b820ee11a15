"""What a server's refusal or a broken connection means, in one sentence, and whether to ask again."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

from model_stager.errors import SourceFlakyError, SourceUnusableError
from model_stager.urls import visible

MESSAGE = 160  # of a server's own words


class SilentError(SourceUnusableError):
    """The server lets us wait: another file would be waited for as long."""


class Headers(Protocol):
    """As http.client and the hub's client both have them."""

    def get(self, name: str, /) -> str | None: ...


def refusal(url: str, status: int, headers: Headers, *, token_sent: bool) -> SourceUnusableError:
    """The reason in an answer that is no success; the sentence stands alone."""
    code = headers.get("X-Error-Code") or ""
    said = f"{visible(url)} answers {status}"
    if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS) or status >= 500:  # noqa: PLR2004 - all
        wait = retry_after(headers)
        told = f", and says to wait {wait:.0f} s" if wait is not None else ""
        return SourceFlakyError(f"{said} ({_name(status)}{told})", wait)
    if code == "GatedRepo":
        page = _model_page(url)
        return SourceUnusableError(
            f"{said}: the model is gated. Accept its licence on {page} with the account that the token is of"
            + ("" if token_sent else ", and give that token by --token-file")
        )
    if code in ("RepoNotFound", "RevisionNotFound", "EntryNotFound"):
        return SourceUnusableError(f"{said}: {_missing(code, token_sent=token_sent)}")
    reasons: dict[int, str] = {
        HTTPStatus.UNAUTHORIZED: "the token is wrong or has expired: put a valid one into the token file"
        if token_sent
        else "it wants a token: give one by --token-file",
        HTTPStatus.FORBIDDEN: "it does not let this machine or account have it",
        HTTPStatus.NOT_FOUND: "it is not there",
    }
    words = re.sub(r"[^\x20-\x7e]", "?", headers.get("X-Error-Message") or "")[:MESSAGE]
    return SourceUnusableError(f"{said}: {reasons.get(status) or words or _name(status)}")


def _missing(code: str, *, token_sent: bool) -> str:
    if code == "RepoNotFound":
        hint = "this token has no right to it" if token_sent else "it is private: then give --token-file"
        return f"there is no such model, or {hint}. Check `repo`"
    return "the model has no such revision" if code == "RevisionNotFound" else "the model has no such file"


def _name(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"


def _model_page(url: str) -> str:
    parts = urlsplit(url)
    path = re.sub(r"^/api/models/", "/", parts.path)
    return visible(parts._replace(path=re.split(r"/(?:resolve|tree|revision|refs)(?:/|$)", path)[0]).geturl())


def retry_after(headers: Headers) -> float | None:
    """Seconds or a date; None when the server does not say or it can't be read."""
    text = (headers.get("Retry-After") or "").strip()
    if not text:
        return None
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def trouble(  # noqa: PLR0911 - one return a kind of trouble
    url: str, exc: Exception, stall_s: float, *, known: bool
) -> SourceUnusableError:
    """Why there is no answer, or no more of it. `known`: the server has answered before, so it may again."""
    where, parts = visible(url), urlsplit(url)
    host = f"{parts.hostname}{f':{parts.port}' if parts.port else ''}"
    kind = SourceFlakyError if known else SourceUnusableError
    if isinstance(exc, socket.gaierror):
        return kind(
            f"the name {parts.hostname} can't be resolved ({exc.strerror}): check the URL and the DNS"
        )
    if isinstance(exc, ssl.SSLCertVerificationError):
        why = f"the certificate of {host} can't be trusted ({exc.verify_message})"
        return SourceUnusableError(f"{why}: add its authority to the system's, or name it by SSL_CERT_FILE")
    if isinstance(exc, ssl.SSLError) and not known:
        return SourceUnusableError(
            f"{host} does not speak TLS as expected ({exc.reason or exc}): check the URL"
        )
    if isinstance(exc, ConnectionRefusedError):
        return kind(f"{host} refuses the connection: nothing listens there")
    if isinstance(exc, socket.timeout):  # no more of it within the limit: another source is the better bet
        return SilentError(f"{where} gave no byte for {stall_s:.0f} s")
    if isinstance(exc, (ConnectionError, http.client.IncompleteRead, ssl.SSLError)):
        return SourceFlakyError(f"{host} has dropped the connection")
    if isinstance(exc, http.client.HTTPException):
        return SourceUnusableError(f"{where} answers in a way that is no HTTP ({type(exc).__name__})")
    reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else type(exc).__name__
    return kind(f"{host} can't be reached ({reason})")
