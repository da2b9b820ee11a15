"""The table of causes: one small function per cause, in the order in which an operator should hear of them.

Pure; runs on the controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .case import Case

REPAIRABLE = "repairable"
NEEDS_PERSON = "needs_person"
NOTE = "note"

# The repair ladder, cheapest step first.
LADDER = (
    "load_modules",
    "make_nodes",
    "fix_config",
    "hot_plug",
    "start_container",
    "restart_container",
    "reboot_host",
)


@dataclass(frozen=True)
class Finding:
    """What one cause's function found in one case."""

    sentence: str
    proof: dict[str, Any] = field(default_factory=dict)
    severity: str = ""  # "" = as the table says
    repair: str | None = ""  # "" = as the table says


@dataclass(frozen=True)
class Cause:
    """One row of the table."""

    name: str
    group: str
    severity: str
    repair: str | None
    about: str
    find: Callable[[Case], Iterator[Finding]]
    explains: frozenset[str] = frozenset()


TABLE: list[Cause] = []

# Results of other causes; they stand alone only where nothing explains them.
CUDA_RESULTS = frozenset(
    ("cuda_unknown", "cuda_no_device", "gpu_missing_in_node", "cuda_allocation_failed", "not_proven")
)


def cause(  # noqa: PLR0913 - the columns of the table, by name
    name: str,
    *,
    group: str,
    severity: str,
    repair: str | None = None,
    about: str,
    explains: frozenset[str] = frozenset(),
) -> Callable[[Callable[[Case], Iterator[Finding]]], Callable[[Case], Iterator[Finding]]]:
    """Add a function to the table under this name."""

    def add(find: Callable[[Case], Iterator[Finding]]) -> Callable[[Case], Iterator[Finding]]:
        TABLE.append(Cause(name, group, severity, repair, about, find, explains))
        return find

    return add


def listed(words: Sequence[str]) -> str:
    """'a', 'a and b', or 'a, b and c': eight GPUs make one sentence, not eight."""
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def names(numbers: list[int]) -> str:
    return ", ".join(str(one) for one in numbers) or "none"


def amount(size: int) -> str:
    """62914560000 → '58.6 GiB'."""
    unit = next((unit for unit in ("TiB", "GiB", "MiB") if size >= _UNITS[unit]), "KiB")
    return f"{size / _UNITS[unit]:.1f} {unit}"


_UNITS = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
