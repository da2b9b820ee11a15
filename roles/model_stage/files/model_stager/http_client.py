"""HTTP as staging needs it: kept connections, few redirects, a limit on each wait, a secret to one server."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
import traceback
import urllib.request
import weakref
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from model_stager import __version__
from model_stager.answers import Answer
from model_stager.errors import SourceFlakyError, SourceUnusableError
from model_stager.refusals import trouble
from model_stager.urls import PORTS, server, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from model_stager.secret import Token

    Server = tuple[str, str, int]
    Idle = tuple[float, http.client.HTTPConnection]  # since when

REDIRECTS = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 5
IDLE_S = 15.0  # after that, a firewall may have forgotten the connection without a word
CONNECT_S = 10.0  # a server that is there answers a connection within that
LOST = (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError)


class HttpClient:
    """Asks servers; safe to use from all workers, each of which gets a connection of its own."""

    def __init__(self, stall_s: float) -> None:
        self.stall_s = stall_s
        self._idle: dict[Server, list[Idle]] = {}
        self._answered: set[Server] = set()
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        weakref.finalize(self, _close_all, self._idle)

    def has_answered(self, url: str) -> bool:
        return server(url) in self._answered

    def ask(
        self, url: str, headers: dict[str, str], *, method: str = "GET", token: Token | None = None
    ) -> Answer:
        """The answer after all redirects, whatever its status is."""
        seen = [url]
        while True:
            answer = self._ask_one(url, headers, method, token)
            target = answer.headers.get("Location")
            if answer.status not in REDIRECTS or not target:
                return answer
            answer.skip()
            url = _require_redirect(seen, urljoin(url, target))
            seen.append(url)

    def _ask_one(self, url: str, headers: dict[str, str], method: str, token: Token | None) -> Answer:
        sent = {
            "Accept-Encoding": "identity",
            "User-Agent": f"model_stager/{__version__}",
            **headers,
            **(token.headers(url) if token else {}),
        }
        proxy = proxy_for(url)
        if proxy is not None and server(url)[0] == "http":
            sent.update(proxy[2])  # over a tunnel, only the proxy itself gets them
        try:
            connection = self._take_idle(url)
            if connection is not None:
                # The server may have closed it long ago, which shows only when it is used.
                with contextlib.suppress(*LOST):
                    return self._exchange(connection, url, method, sent, token)
                self._drop_idle(url)
            return self._exchange(self._connect(url), url, method, sent, token)
        except (OSError, http.client.HTTPException) as exc:
            raise trouble(url, exc, self.stall_s, known=self.has_answered(url)) from exc

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        url: str,
        method: str,
        headers: dict[str, str],
        token: Token | None,
    ) -> Answer:
        target = self._target(url)
        line = socket_of(connection)
        response: http.client.HTTPResponse | None = None
        try:
            with limited(line, self.stall_s):
                connection.request(method, target, headers=headers)
                response = connection.getresponse()
        except BaseException:
            connection.close()
            if response is not None:
                response.close()
            raise
        self._answered.add(server(url))
        sent_token = token is not None and token.belongs_to(url)
        return Answer(url, response, line, self, connection, token_sent=sent_token)

    # Connections

    def _take_idle(self, url: str) -> http.client.HTTPConnection | None:
        oldest = time.monotonic() - IDLE_S
        with self._lock:
            idle = self._idle.get(server(url), [])
            while idle:
                since, connection = idle.pop()
                if since > oldest:
                    return connection
                connection.close()
        return None

    def _drop_idle(self, url: str) -> None:
        with self._lock:
            dropped = self._idle.pop(server(url), [])
        for _, connection in dropped:
            connection.close()

    def keep(self, url: str, connection: http.client.HTTPConnection) -> None:
        """A connection whose answer has been read to its end."""
        with self._lock:
            self._idle.setdefault(server(url), []).append((time.monotonic(), connection))

    def _connect(self, url: str) -> http.client.HTTPConnection:
        scheme, host, port = server(url)
        proxy = proxy_for(url)
        timeout = min(self.stall_s, CONNECT_S)
        first = (host, port)
        if proxy is not None:
            first = (proxy[0], proxy[1])
        connection: http.client.HTTPConnection
        if scheme == "https":
            connection = http.client.HTTPSConnection(*first, timeout=timeout, context=self._context())
            if proxy is not None:
                connection.set_tunnel(host, port, headers=proxy[2])
        else:
            connection = http.client.HTTPConnection(*first, timeout=timeout)
        try:
            connection.connect()
        except socket.timeout as exc:
            connection.close()
            silent = f"{first[0]}:{first[1]} does not answer: no connection within {timeout:.0f} s"
            raise SourceUnusableError(silent) from exc
        except OSError as exc:
            connection.close()
            if proxy is None or isinstance(exc, ssl.SSLError):
                raise
            traceback.clear_frames(exc.__traceback__)  # where http.client leaves a refused tunnel open
            kind = SourceFlakyError if self.has_answered(url) else SourceUnusableError
            lead = f"the proxy {proxy[0]}:{proxy[1]} of the environment does not lead to {host}:{port}"
            raise kind(f"{lead} ({exc.strerror or exc})") from exc
        socket_of(connection).settimeout(self.stall_s)
        return connection

    def _target(self, url: str) -> str:
        """What the request line names: a proxy for plain HTTP wants the whole URL."""
        parts = urlsplit(url)
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        if parts.scheme == "http" and proxy_for(url) is not None:
            return f"http://{parts.netloc}{path}"
        return path

    def _context(self) -> ssl.SSLContext:
        with self._lock:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            return self._tls


def _close_all(idle: dict[Server, list[Idle]]) -> None:
    for connections in idle.values():
        for _, connection in connections:
            connection.close()


def _require_redirect(seen: list[str], target: str) -> str:
    first = visible(seen[0])
    if urlsplit(target).scheme not in PORTS:
        raise SourceUnusableError(f"{first} redirects to {visible(target)}, which is no http or https URL")
    if target in seen:
        path = " → ".join(visible(url) for url in (*seen[seen.index(target) :], target))
        raise SourceUnusableError(f"{first} redirects in a circle: {path}")
    if len(seen) > MAX_REDIRECTS:
        raise SourceUnusableError(
            f"{first} redirects more than {MAX_REDIRECTS} times, lastly to {visible(target)}"
        )
    if urlsplit(seen[-1]).scheme == "https" and urlsplit(target).scheme == "http":
        raise SourceUnusableError(f"{first} redirects from https to plain http ({visible(target)})")
    return target


def proxy_for(url: str) -> tuple[str, int, dict[str, str]] | None:
    """Host, port and headers of the proxy that the environment names for this URL."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    host = parts.hostname or ""
    if not proxy or urllib.request.proxy_bypass(f"{host}:{parts.port}" if parts.port else host):
        return None
    found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if found.scheme not in PORTS:
        at = f"{found.hostname}:{found.port}"
        raise SourceUnusableError(
            f"the environment names a {found.scheme} proxy ({at}) for {host}: only HTTP works"
        )
    headers = {}
    if found.username is not None:
        given = f"{unquote(found.username)}:{unquote(found.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {b64encode(given).decode()}"
    return found.hostname or "", found.port or PORTS.get(found.scheme, 80), headers


def socket_of(connection: http.client.HTTPConnection) -> socket.socket:
    line: socket.socket | None = connection.sock
    if line is None:
        raise http.client.NotConnected
    return line


@contextlib.contextmanager
def limited(line: socket.socket, seconds: float) -> Iterator[None]:
    """Cut the line when the block takes longer: a limit on each byte does not stop one byte a second."""
    passed = threading.Event()

    def cut() -> None:
        passed.set()
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as exc:
        if passed.is_set():
            raise socket.timeout from exc
        raise
    else:
        if passed.is_set():  # http.client takes a head that was cut for a whole one
            raise socket.timeout
    finally:
        timer.cancel()
