"""The one error of the stand-in: Proxmox's words, and the exit status it came with."""

from __future__ import annotations


class PctError(Exception):
    """Printed as it stands on stderr; `status` is an errno in disguise, as with the real command."""

    def __init__(self, message: str, status: int = 255) -> None:
        super().__init__(message)
        self.status = status
