"""Which clocks we locked in this boot. The driver does not tell, and a reboot unlocks them all.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .declared import UNLOCKED
from .plan import LOCKS

VERSION = 1


def boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    return path.read_text(encoding="ascii").strip()


def load(path: Path, boot: str) -> dict[str, dict[str, Any]]:
    """UUID → setting → range or `unlocked`; empty where there is no record of this boot."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # without a record the locks are set anew, which does no harm
    if not isinstance(raw, dict) or raw.get("version") != VERSION or raw.get("boot_id") != boot:
        return {}
    gpus = raw.get("gpus")
    found: dict[str, dict[str, Any]] = {}
    for uuid, settings in gpus.items() if isinstance(gpus, dict) else ():
        for setting, value in settings.items() if isinstance(settings, dict) else ():
            if setting in LOCKS and _is_lock(value):
                found.setdefault(str(uuid), {})[setting] = value if value == UNLOCKED else tuple(value)
    return found


def _is_lock(value: Any) -> bool:  # noqa: ANN401 - what stands in the file
    if isinstance(value, list):
        return len(value) == 2 and all(isinstance(end, int) for end in value)  # noqa: PLR2004 - a range's ends
    return bool(value == UNLOCKED)


def save(path: Path, boot: str, locked: dict[str, dict[str, Any]]) -> None:
    """Write the record whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": VERSION, "boot_id": boot, "gpus": locked}, indent=1, sort_keys=True) + "\n"
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=str(path.parent))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
