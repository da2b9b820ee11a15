"""Make a tmpfs larger while it is in use; gone with the next reboot, as the models in it are."""

from __future__ import annotations

import subprocess

from model_stager.errors import NoRoomError

LIMIT_S = 30


def grow(mount: str, size_bytes: int) -> None:
    """`mount` keeps the other options as they are; it needs root."""
    command = ["mount", "-o", f"remount,size={size_bytes}", mount]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        reason = (done.stderr.strip() or "unknown").splitlines()[0] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as exc:
        reason = str(exc)
    if reason:
        raise NoRoomError(
            f"{mount} could not be made larger ({reason}): do it by hand "
            f"(mount -o remount,size={size_bytes} {mount}), or set model_stage_grow_allowed to false",
            limit="filesystem",
            needed=size_bytes,
        )
