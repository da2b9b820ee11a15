"""What a load needs of a server, whoever runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bench_runner.client.receivers import Receiver
    from bench_runner.client.transport import Connection


class Dialect(Protocol):
    """How the server is spoken to."""

    @property
    def path(self) -> str: ...

    def request_body(self, prompt: str, output_tokens: int) -> bytes: ...

    def tokens(self, text: str) -> int:
        """May raise a ServerError."""
        ...


class Target(Protocol):
    @property
    def engine(self) -> Dialect: ...

    @property
    def receiver(self) -> Receiver: ...

    def connection(self) -> Connection: ...

    async def has_died(self, *, patient: bool = False) -> bool: ...
