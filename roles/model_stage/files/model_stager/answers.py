"""A server's answer: its head, and its body read straight into a worker's buffer."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from typing import TYPE_CHECKING, Protocol

from model_stager.errors import SourceFlakyError, SourceUnusableError
from model_stager.refusals import refusal, trouble
from model_stager.urls import visible

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

SOON_S = 0.25  # what has come is handed on by then, so that a slow source shows as slow, not as stalled
CHUNKED = 64 << 10
SKIPPED = 64 << 10  # of an answer that nobody wants: less than a new connection costs


class Connections(Protocol):
    """Where the answer's connection came from."""

    stall_s: float

    def keep(self, url: str, connection: HTTPConnection) -> None: ...


class Answer:
    """Read by one thread; another may close it, which ends the reading."""

    def __init__(  # noqa: PLR0913 - made in one place
        self,
        url: str,
        response: HTTPResponse,
        line: socket.socket,
        connections: Connections,
        connection: HTTPConnection,
        *,
        token_sent: bool,
    ) -> None:
        self.url = url
        self.status = response.status
        self.headers = response.headers
        self.token_sent = token_sent
        self.length = response.length  # of the body; None when the server does not say
        self._response = response
        self._line = line
        self._connections = connections
        self._connection: HTTPConnection | None = connection
        self._late: SourceUnusableError | None = None

    @property
    def where(self) -> str:
        return visible(self.url)

    def require_success(self) -> None:
        """Raise what the status means unless it is a success."""
        if not 200 <= self.status < 300:  # noqa: PLR2004 - HTTP's own numbers
            self.skip()
            raise refusal(self.url, self.status, self.headers, token_sent=self.token_sent)

    def readinto(self, view: memoryview) -> int:
        """Fill the view as far as bytes come soon; 0 at the end. What came before a fault is given first."""
        if self._late is not None:
            raise self._late
        filled, until = 0, time.monotonic() + SOON_S
        try:
            while filled < len(view):
                got = self._some(view[filled:])
                filled += got
                if got == 0 or time.monotonic() >= until:
                    break
        except (OSError, http.client.HTTPException) as exc:
            self._late = trouble(self.url, exc, self._connections.stall_s, known=True)
        except (ValueError, AttributeError):  # http.client's way to say that another thread has closed it
            self._late = SourceFlakyError(f"{self.where} was given up")
        if self._late is not None and not filled:
            raise self._late
        return filled

    def _some(self, view: memoryview) -> int:
        response = self._response
        # What is full soon: http.client's own readinto waits until there is no room left in the view.
        if response.chunked:
            return response.readinto(view[:CHUNKED])
        if response.length is None:
            return response.fp.readinto1(view)
        wanted = min(len(view), response.length)
        if wanted == 0:
            return 0
        got = response.fp.readinto1(view[:wanted])
        if got == 0:
            raise http.client.IncompleteRead(b"", response.length)
        response.length -= got
        return got

    @property
    def ends_itself(self) -> bool:
        """Whether the end of the body is told from a connection that broke."""
        return self.length is not None or bool(self._response.chunked)

    def read(self, limit: int) -> bytes:
        """The whole body, when it is not larger than that."""
        content = bytearray()
        block = memoryview(bytearray(min(limit + 1, 1 << 20)))
        while len(content) <= limit and (got := self.readinto(block)):
            content += block[:got]
        if len(content) > limit:
            raise SourceUnusableError(f"{self.where} gives more than {limit} bytes")
        return bytes(content)

    def skip(self) -> None:
        """Leave the body unread; a short one is read after all, to keep the connection."""
        if self.length is not None and self.length <= SKIPPED:
            with contextlib.suppress(SourceUnusableError):
                self.read(SKIPPED)
        self.close()

    def close(self) -> None:
        """Keep the connection when everything was read, else end it, also under a thread that reads."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        response = self._response
        if response.length == 0 and not response.chunked and not response.will_close and self._late is None:
            response.read()  # ends the answer, so that the connection is free for the next request
            self._connections.keep(self.url, connection)
            return
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        connection.close()
        response.close()
