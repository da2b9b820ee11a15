"""What a reboot changed: two diagnoses of one node, compared field by field.

Pure; runs on the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .evidence import dig, items, mapping, number, records, text

Diagnosis = Mapping[str, Any]


def what_changed(before: Diagnosis, after: Diagnosis) -> list[dict[str, Any]]:
    """[{what, before, after}] in a fixed order; what was not seen at one of the two times is left out."""
    changes = []
    for what, read in _FIELDS:
        old, new = read(before), read(after)
        if old is not None and new is not None and old != new:
            changes.append({"what": what, "before": old, "after": new})
    return changes


def _majors(diagnosis: Diagnosis) -> dict[str, int] | None:
    rows = items(diagnosis, "host_evidence", "proc_devices")
    found = {
        row[1]: row[0]
        for row in rows
        if isinstance(row, (list, tuple)) and len(row) == 2 and isinstance(row[1], str)  # noqa: PLR2004
    }
    return (
        {name: major for name, major in sorted(found.items()) if name.startswith("nvidia")} if rows else None
    )


def _links(diagnosis: Diagnosis) -> dict[str, str] | None:
    """Width only: the speed falls whenever a GPU is idle."""
    gpus = records(diagnosis, "host_evidence", "gpus")
    return {text(gpu, "pci") or "?": f"x{number(gpu, 'link', 'width')}" for gpu in gpus} or None


def _order(diagnosis: Diagnosis) -> list[str] | None:
    """UUIDs in CUDA's order, or in that of the host's node numbers."""
    devices = records(diagnosis, "node_evidence", "cuda", "devices")
    gpus = devices or records(diagnosis, "host_evidence", "driver", "gpus")
    uuids = [text(gpu, "uuid") for gpu in gpus]
    return [uuid for uuid in uuids if uuid] or None


def _cpuset(diagnosis: Diagnosis) -> str | None:
    vmid = str(dig(diagnosis, "vmid"))
    live = text(diagnosis, "host_evidence", "containers", vmid, "live", "cpuset")
    return live or text(diagnosis, "node_evidence", "cpus")


def _free_gib(diagnosis: Diagnosis) -> int | None:
    """In whole GiB: smaller differences are noise."""
    available = number(diagnosis, "host_evidence", "memory", "MemAvailable")
    return available // (1 << 30) if available is not None else None


def _config(diagnosis: Diagnosis) -> str | None:
    vmid = str(dig(diagnosis, "vmid"))
    return text(diagnosis, "host_evidence", "containers", vmid, "config_digest")


def _modes(diagnosis: Diagnosis) -> dict[str, Any] | None:
    devices = records(diagnosis, "node_evidence", "nvml", "devices") or records(
        diagnosis, "host_evidence", "nvml", "devices"
    )
    kept = ("mig", "ecc", "compute_mode", "persistence")
    found = {
        text(gpu, "uuid") or str(number(gpu, "index")): {key: gpu[key] for key in kept if key in gpu}
        for gpu in devices
    }
    return found or None


def _limit(diagnosis: Diagnosis) -> int | None:
    vmid = str(dig(diagnosis, "vmid"))
    return number(mapping(diagnosis, "host_evidence", "containers", vmid), "live", "memory_max_bytes")


_FIELDS: tuple[tuple[str, Callable[[Diagnosis], Any]], ...] = (
    ("boot", lambda one: text(one, "host_evidence", "boot_id")),
    ("kernel", lambda one: text(one, "host_evidence", "kernel")),
    ("Proxmox VE", lambda one: text(one, "host_evidence", "pve_version", "text")),
    ("driver", lambda one: text(one, "host_evidence", "driver", "version")),
    ("driver library", lambda one: text(one, "node_evidence", "cuda", "library", "version")),
    ("majors", _majors),
    ("PCIe link widths", _links),
    ("GPU order", _order),
    ("GPU modes", _modes),
    ("cpuset", _cpuset),
    ("host's free memory (GiB)", _free_gib),
    ("container's file", _config),
    ("container's memory limit", _limit),
)
