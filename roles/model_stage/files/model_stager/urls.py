"""URLs: checked at the door, and shown without what may be secret in them."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from model_stager.errors import BadRequestError

PORTS = {"http": 80, "https": 443}


def require_url(text: str, example: str) -> str:
    """A plain http or https URL without a slash at its end."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in PORTS and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known:
        raise BadRequestError(f"the source {example.partition('=')[0]} needs a URL, as `{example}`")
    if parts.username is not None or parts.query or parts.fragment:
        raise BadRequestError(
            f"the source {visible(text)} has a password or a query in its URL, where process lists would "
            f"show it: give the plain URL, as `{example}`"
        )
    return text.rstrip("/")


def visible(url: str) -> str:
    """Without user, query and fragment: a signature or a password is nobody's to read."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def server(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what one server is, and what a secret is bound to."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)


def below(base: str, name: str) -> str:
    """The URL of a file in the folder that the base URL names."""
    return f"{base}/{quote(name)}"
