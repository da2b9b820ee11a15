"""Where a campaign runs: the node's and the host's names and the facts about them.

Ansible hands in what only the host sees (environment.json); the rest is read here. What nobody knows is None.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from bench_runner.errors import PlanError

# Facts by the list they belong to. One that isn't named here is recorded only: it may explain, not decide.
IDENTITY_FACTS = ("gpu_model", "gpu_count")
COMPARABILITY_FACTS = (
    "driver_version",
    "cuda_version",
    "kernel",
    "power_limit_w",
    "pcie_links",
    "numa",
    "cpu_model",
)


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: str
    host: str
    host_facts: dict[str, Any] = field(default_factory=dict)
    model_bytes: dict[str, int] = field(default_factory=dict)  # of the models that were staged before


def load_environment(path: Path) -> Environment:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Environment)
    except OSError as exc:
        raise PlanError([f"{path}: {exc.strerror}; it names the node and its host"]) from exc
    except msgspec.DecodeError as exc:
        raise PlanError([f"{path}: {exc}"]) from exc


def facts(environment: Environment, *, proc: Path = Path("/proc")) -> dict[str, Any]:
    """All facts, by name: what this node sees, and over it what the host knows better."""
    seen: dict[str, Any] = {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu_model": _cpu_model(proc),
        "cpuset": sorted(os.sched_getaffinity(0)),
        "boot_id": boot_id(proc=proc),
        "uptime_s": _uptime_s(proc),
        "memory_total_kib": _memory_total_kib(proc),
        "python": platform.python_version(),
    }
    return {**seen, **environment.host_facts}


def boot_id(*, proc: Path = Path("/proc")) -> str:
    return _first_line(proc / "sys/kernel/random/boot_id") or "unknown"


def _cpu_model(proc: Path) -> str | None:
    for line in _lines(proc / "cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return None


def _uptime_s(proc: Path) -> float | None:
    line = _first_line(proc / "uptime")
    return float(line.split()[0]) if line else None


def _memory_total_kib(proc: Path) -> int | None:
    for line in _lines(proc / "meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    return None


def _first_line(path: Path) -> str | None:
    return next(iter(_lines(path)), None)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
