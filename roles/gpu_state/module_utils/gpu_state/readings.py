"""What `nvidia-smi --query-gpu` prints, as values: a field that can't be read keeps the word that said so.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

IDENTITY = ("index", "uuid", "pci.bus_id")
# Field of nvidia-smi -> our name. A driver that does not know one refuses the whole query.
FIELDS = {
    "name": "name",
    "driver_version": "driver_version",
    "persistence_mode": "persistence",
    "ecc.mode.current": "ecc",
    "ecc.mode.pending": "ecc_pending",
    "mig.mode.current": "mig",
    "mig.mode.pending": "mig_pending",
    "compute_mode": "compute_mode",
    "power.limit": "power_limit_w",
    "enforced.power.limit": "power_enforced_w",
    "power.default_limit": "power_default_w",
    "power.min_limit": "power_min_w",
    "power.max_limit": "power_max_w",
    "clocks.max.graphics": "graphics_max_mhz",
    "clocks.max.memory": "memory_max_mhz",
    "clocks.current.graphics": "graphics_now_mhz",
    "clocks.current.memory": "memory_now_mhz",
}
SWITCHES = ("persistence", "ecc", "ecc_pending", "mig", "mig_pending")
ON_OFF = {"enabled": True, "disabled": False}
UNKNOWN_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
# The words for "this card has no such thing"; any other word in brackets is a reading that failed.
ABSENT = ("[N/A]", "[Not Supported]", "N/A")
UNKNOWN_TO_DRIVER = "unknown to this driver"


class ReadingError(Exception):
    """nvidia-smi printed what can't be understood."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. `values` has what was read; `unread` has, for the rest, nvidia-smi's own word."""

    index: int
    uuid: str
    pci: str
    values: dict[str, Any] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"GPU {self.index} ({self.uuid}, {self.pci})"

    def lacks(self, name: str) -> bool:
        """Whether the card has no such thing, in contrast to a reading that failed."""
        return self.unread.get(name) in ABSENT


def read_csv(text: str, fields: tuple[str, ...]) -> list[Gpu]:
    """The GPUs of a `csv,noheader,nounits` answer, in order of their index."""
    gpus = []
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(fields) + len(IDENTITY):
            wanted = len(fields) + len(IDENTITY)
            raise ReadingError(f"nvidia-smi printed {len(cells)} values, {wanted} were asked for: {line!r}")
        index, uuid, pci = cells[: len(IDENTITY)]
        if not index.isdigit() or not uuid.startswith("GPU-"):
            raise ReadingError(f"nvidia-smi named no GPU in: {line!r}")
        gpus.append(_gpu(int(index), uuid, pci, dict(zip(fields, cells[len(IDENTITY) :]))))
    return sorted(gpus, key=lambda gpu: gpu.index)


def _gpu(index: int, uuid: str, pci: str, words: dict[str, str]) -> Gpu:
    values: dict[str, Any] = {}
    unread = {name: UNKNOWN_TO_DRIVER for asked, name in FIELDS.items() if asked not in words}
    for asked, word in words.items():
        name = FIELDS[asked]
        try:
            values[name] = _value(name, word)
        except (ValueError, KeyError):
            unread[name] = word
    return Gpu(index, uuid, pci, values, unread)


def _value(name: str, word: str) -> Any:  # noqa: ANN401 - the type goes by the name
    if word.startswith("[") or word in ABSENT:
        raise ValueError(word)
    if name in SWITCHES:
        return ON_OFF[word.lower()]
    if name.endswith("_w"):
        return float(word)
    if name.endswith("_mhz"):
        return int(word)
    if name == "compute_mode":
        return word.lower().replace(" ", "_")
    return word
