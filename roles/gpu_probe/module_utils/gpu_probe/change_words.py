"""What a reboot changed, a sentence each. Notes for the operator: a change is no cause.

Pure; runs on the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

MOST_GPUS = 3
MOST_SENTENCES = 5
GIB = 1 << 30
# Free memory is never twice the same; a model more or less in it is what matters.
MEMORY_NOISE = 0.05


def sentences(changes: Iterable[Mapping[str, Any]]) -> list[str]:
    """In the order of the changes; what is only noise has no sentence."""
    found: list[str] = []
    for change in changes:
        what = str(change.get("what"))
        tell = _WORDS.get(what, _plain(what))
        found += tell(change.get("before"), change.get("after"))
    return found


def one_line(changes: Iterable[Mapping[str, Any]]) -> str:
    """For a node's line; the rest is in the diagnosis."""
    found = sentences(changes)
    told = [*found[:MOST_SENTENCES], f"{len(found) - MOST_SENTENCES} more"]
    return "; ".join(told if len(found) > MOST_SENTENCES else found)


def _plain(what: str) -> Callable[[Any, Any], list[str]]:
    def tell(before: Any, after: Any) -> list[str]:  # noqa: ANN401 - evidence of any type
        return [f"{what} was {before} and is {after}"]

    return tell


def _boot(_before: Any, _after: Any) -> list[str]:  # noqa: ANN401
    return ["the host was booted again"]


def _config(_before: Any, _after: Any) -> list[str]:  # noqa: ANN401
    return ["the container's file was edited"]


def _majors(before: Any, after: Any) -> list[str]:  # noqa: ANN401
    old, new = _named(before), _named(after)
    found = []
    for driver in sorted({*old, *new}):
        if driver not in new:
            found.append(f"{driver} has no major any more (it had {old[driver]})")
        elif driver not in old:
            found.append(f"{driver} has the major {new[driver]} (it had none)")
        elif old[driver] != new[driver]:
            found.append(f"the major of {driver} was {old[driver]} and is {new[driver]}")
    return found


def _links(before: Any, after: Any) -> list[str]:  # noqa: ANN401
    old, new = _named(before), _named(after)
    found = [f"GPU {pci} is gone from PCI" for pci in sorted(old.keys() - new.keys())]
    found += [f"GPU {pci} is new on PCI" for pci in sorted(new.keys() - old.keys())]
    found += [
        f"the link of GPU {pci} was {old[pci]} wide and is {new[pci]}"
        for pci in sorted(old.keys() & new.keys())
        if old[pci] != new[pci] and "None" not in f"{old[pci]}{new[pci]}"
    ]
    return found


def _order(before: Any, after: Any) -> list[str]:  # noqa: ANN401
    old, new = _listed(before), _listed(after)
    found = [f"{_short(uuid)} is gone" for uuid in old if uuid not in new]
    found += [f"{_short(uuid)} is new" for uuid in new if uuid not in old]
    moved = [
        f"GPU {index} was {_short(one)} and is {_short(other)}"
        for index, (one, other) in enumerate(zip(old, new))
        if one != other
    ]
    if found or not moved:
        return found
    more = f" and {len(moved) - MOST_GPUS} more" if len(moved) > MOST_GPUS else ""
    return [f"the GPUs have another order: {', '.join(moved[:MOST_GPUS])}{more}"]


def _modes(before: Any, after: Any) -> list[str]:  # noqa: ANN401
    old, new = _named(before), _named(after)
    found = []
    for uuid in sorted(old.keys() & new.keys()):
        one, other = _named(old[uuid]), _named(new[uuid])
        found += [
            f"{key.replace('_', ' ')} of {_short(uuid)} was {_mode(one[key])} and is {_mode(other[key])}"
            for key in sorted(one.keys() & other.keys())
            if one[key] != other[key]
        ]
    return found


def _mode(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, Mapping):
        now, then = _mode(value.get("current")), _mode(value.get("pending"))
        return now if now == then else f"{now} ({then} after a reset)"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _cpuset(before: Any, after: Any) -> list[str]:  # noqa: ANN401
    return [f"the container had the CPUs {before} and has {after}"]


def _free(before: Any, after: Any) -> list[str]:  # noqa: ANN401
    if isinstance(before, int) and isinstance(after, int) and abs(after - before) <= before * MEMORY_NOISE:
        return []
    return [f"the host had {before} GiB of free memory and has {after}"]


def _limit(before: Any, after: Any) -> list[str]:  # noqa: ANN401
    if isinstance(before, int) and isinstance(after, int):
        return [f"the container's memory limit was {before / GIB:.0f} GiB and is {after / GIB:.0f}"]
    return _plain("the container's memory limit")(before, after)


def _named(value: Any) -> Mapping[str, Any]:  # noqa: ANN401
    return value if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[str]:  # noqa: ANN401
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else []


def _short(uuid: str) -> str:
    """GPU-7d5a3f4c out of the whole UUID, which is in the diagnosis."""
    return uuid[:12] if uuid.startswith("GPU-") else f"GPU {uuid}"


_WORDS: dict[str, Callable[[Any, Any], list[str]]] = {
    "boot": _boot,
    "kernel": _plain("the kernel"),
    "driver": _plain("the driver"),
    "driver library": _plain("the container's driver library"),
    "majors": _majors,
    "PCIe link widths": _links,
    "GPU order": _order,
    "GPU modes": _modes,
    "cpuset": _cpuset,
    "host's free memory (GiB)": _free,
    "container's file": _config,
    "container's memory limit": _limit,
}
