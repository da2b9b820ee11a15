"""The key of a server's API: read from the file that a description names, sent, and never told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bench_runner.errors import ServerError

if TYPE_CHECKING:
    from bench_runner.deployment import Deployment


def authorization(deployment: Deployment) -> dict[str, str]:
    """The header that each request needs; none where the server wants no key.

    The unit of a campaign is given the files by systemd (LoadCredential=), since only root may read them.
    """
    if deployment.api_key_file is None:
        return {}
    loaded = Path(
        os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent"), f"{deployment.configuration}.api_key"
    )
    path = loaded if loaded.is_file() else Path(deployment.api_key_file)
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as exc:
        raise ServerError(
            "no_api_key",
            f"the API key of {deployment.configuration} is to be in {path}, which can't be read:"
            f" {getattr(exc, 'strerror', None) or 'it is no plain text'}",
        ) from exc
    return {"Authorization": f"Bearer {key}"}
