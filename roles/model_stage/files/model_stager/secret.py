"""The hub's token: read from a file that only its owner can read, shown to nobody, sent to one server."""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING

from model_stager.errors import BadRequestError
from model_stager.urls import server

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = re.compile(r"^[\x21-\x7e]{1,1000}$")
ACL = "system.posix_acl_access"
GROUP_OBJ, GROUP, OTHER = 0x04, 0x08, 0x20  # tags of entries that are not one user's
READ = 4


class Token:
    """Bound to the server of one endpoint; its value has no other way out."""

    def __init__(self, value: str, endpoint: str) -> None:
        self._value = value
        self._server = server(endpoint)

    def __repr__(self) -> str:
        return "Token(not shown)"

    def belongs_to(self, url: str) -> bool:
        return server(url) == self._server

    def headers(self, url: str) -> dict[str, str]:
        """For a request to this URL: none when it goes to any other server."""
        return {"Authorization": f"Bearer {self._value}"} if self.belongs_to(url) else {}

    def reveal(self) -> str:
        """For the hub's own client, which wants the value."""
        return self._value


def read_token(path: Path, endpoint: str) -> Token:
    """Refuse a file that others can read, as it would be no secret."""
    try:
        if _others_can_read(path):
            raise BadRequestError(f"the token file {path} can be read by others: chmod 600 {path}")
        text = path.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise BadRequestError(f"the token file {path} can't be read: {exc.strerror}") from exc
    except UnicodeDecodeError:
        text = ""
    if not TOKEN.match(text):
        raise BadRequestError(f"the token file {path} holds no token: one line without spaces is expected")
    return Token(text, endpoint)


def _others_can_read(path: Path) -> bool:
    """With an access list the mode's group bits are only its mask: systemd gives credentials that way."""
    mode = path.stat().st_mode
    try:
        raw = os.getxattr(path, ACL)
    except OSError:  # no access list
        return bool(mode & 0o077)
    entries = struct.iter_unpack("<HHI", raw[4:])
    return any(tag in (GROUP_OBJ, GROUP, OTHER) and permissions & READ for tag, permissions, _user in entries)
