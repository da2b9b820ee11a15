"""Filters of gpu_probe: the table that diagnose.yml prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ansible.module_utils

# On the controller a role's module_utils are not importable by themselves.
_FOLDER = str(Path(__file__).resolve().parents[1] / "module_utils")
if _FOLDER not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_FOLDER)

from ansible.module_utils.gpu_probe.report import table


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_probe_table": table}
