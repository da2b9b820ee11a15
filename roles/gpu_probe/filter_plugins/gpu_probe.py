"""Filters of gpu_probe: the table that diagnose.yml prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ansible.module_utils

# A role's module_utils can't be imported on the controller by themselves: the path comes before the import.
_FOLDER = str(Path(__file__).resolve().parents[1] / "module_utils")
if _FOLDER not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(_FOLDER)

from ansible.module_utils.gpu_probe.report import table  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_probe_table": table}
