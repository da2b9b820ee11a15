"""The GPUs of a node, and whether a configuration's are among them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PROC = Path("/proc/driver/nvidia/gpus")
DEV = Path("/dev")
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]+")


def list_gpus(proc: Path = PROC, dev: Path = DEV) -> list[str]:
    """UUIDs of the GPUs that this node has nodes for, by PCI address: their places are CUDA's indexes.

    The driver lists all GPUs of the host, in a container too; nvidia-smi would hang where the driver does.
    """
    found = []
    for folder in sorted(proc.glob("*")):
        try:
            text = (folder / "information").read_text(errors="replace")
        except OSError:
            continue
        told = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in text.splitlines())
        }
        minor = told.get("Device Minor", "")
        if minor.isdigit() and (dev / f"nvidia{minor}").is_char_device():
            found.append(told.get("GPU UUID", "unknown"))
    return found


def check_declared(gpus: object, tensor_parallelism: int) -> str | None:
    """What is wrong with a configuration's `gpus` in itself."""
    if not isinstance(gpus, list) or not all(
        (isinstance(each, int) and not isinstance(each, bool) and each >= 0)
        or (isinstance(each, str) and _UUID.fullmatch(each))
        for each in gpus
    ):
        return f"gpus must be a list of indexes (0, 1, …) or UUIDs (GPU-…), not {gpus!r}"
    if len({str(each) for each in gpus}) < len(gpus):
        return f"gpus names one twice: {_enumerate(gpus)}"
    if len({type(each) for each in gpus}) > 1:
        return f"gpus mixes indexes and UUIDs, which CUDA does not take: {_enumerate(gpus)}"
    if gpus and len(gpus) < tensor_parallelism:
        few = f"gpus are {len(gpus)} ({_enumerate(gpus)})"
        return f"{few}, fewer than its tensor_parallelism of {tensor_parallelism}"
    return None


def check_present(gpus: Sequence[object], tensor_parallelism: int, present: Sequence[str]) -> str | None:
    """What a configuration lacks on a node with these GPUs."""
    there = f"the node has {len(present)}"
    if present:
        there += f": {_enumerate([f'{index} ({uuid})' for index, uuid in enumerate(present)])}"
    else:
        there += " that can be used: playbooks/diagnose.yml says why"
    if not gpus and len(present) < tensor_parallelism:
        return f"its tensor_parallelism of {tensor_parallelism} needs as many GPUs, {there}"
    # A slice of a GPU (MIG) is not listed by the driver's files.
    known = {*present, *range(len(present))}
    missing = [each for each in gpus if each not in known and not str(each).startswith("MIG-")]
    if missing:
        return f"GPU {_enumerate(missing)} of its gpus does not exist, {there}"
    return None


def gpu_environment(gpus: Sequence[object]) -> dict[str, str]:
    """GPUs by index or UUID; the order by PCI bus makes an index the one nvidia-smi shows."""
    if not gpus:
        return {}
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(each) for each in gpus),
    }


def _enumerate(words: Sequence[object]) -> str:
    return ", ".join(str(word) for word in words)
