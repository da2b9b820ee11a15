"""The host's "hardware" as the lab set it (tests/lab/drivers.py writes it), and what is loaded of it now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SETTINGS = Path("/var/lib/lab/drivers.json")
RUN = Path("/run/lab-drivers")
CORE, UVM = "nvidia", "nvidia-uvm"


def load_settings() -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(SETTINGS.read_text())
    return settings


def loaded() -> set[str]:
    """The modules that are loaded: none, nvidia, or nvidia and nvidia-uvm."""
    path = RUN / "loaded"
    return set(path.read_text().split()) if path.exists() else set()


def set_loaded(modules: set[str]) -> None:
    (RUN / "loaded").write_text(" ".join(sorted(modules)))
