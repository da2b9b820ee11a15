"""What a quirk covers: a place (GPU, driver, engine build), a model, flags. All that is given must match."""

from __future__ import annotations

import re
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench_runner.quirks.expression import flag_value, parse
from bench_runner.quirks.versions import in_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_runner.cells import Cell
    from bench_runner.deployment import Deployment
    from bench_runner.plan import Quirk

# NVIDIA's names of GPUs by compute capability, where nobody says it; the first that is found.
# https://developer.nvidia.com/cuda-gpus
_ARCHITECTURES = (
    ("sm120", r"RTX PRO \d+.*Blackwell|RTX 50\d\d"),
    ("sm103", r"\b[GB]+300\b"),
    ("sm100", r"\b[GB]+200\b"),
    ("sm90", r"\b(H100|H200|H800|H20|GH200)\b"),
    ("sm89", r"\b(L4|L20|L40S?)\b|Ada Generation|RTX 40\d\d"),
    ("sm86", r"\b(A10|A16|A40)\b|RTX A\d000|RTX 30\d\d"),
    ("sm80", r"\b(A100|A800|A30)\b"),
)


class Place(Struct, frozen=True, kw_only=True):
    """What a fault may depend on beside a configuration. What nobody knows is None."""

    gpu_model: str | None = None
    gpu_architecture: str | None = None
    driver_version: str | None = None


def place_of(facts: dict[str, Any]) -> Place:
    model, said = facts.get("gpu_model"), facts.get("gpu_architecture")
    return Place(
        gpu_model=model,
        gpu_architecture=_plain(said) if said else _architecture(model),
        driver_version=facts.get("driver_version"),
    )


def covers(quirk: Quirk, cell: Cell, deployment: Deployment, place: Place) -> bool:
    flags = deployment.flags
    return (
        _among(cell.configuration, quirk.configurations)
        and _among(cell.workload, quirk.workloads)
        and _among(deployment.model, quirk.models)
        and _among(deployment.engine, quirk.engines)
        and _among(deployment.engine_build, quirk.engine_builds)
        and _among(place.gpu_model, quirk.gpu_models)
        and _among(place.gpu_architecture, [_plain(name) for name in quirk.gpu_architectures])
        and (quirk.builds is None or in_range(deployment.engine_build, quirk.builds))
        and (quirk.drivers is None or in_range(place.driver_version, quirk.drivers))
        and all(_is_or_in(flag_value(flags, name), wanted) for name, wanted in quirk.flags.items())
        and (quirk.when is None or parse(quirk.when)(flags))
    )


def has_expired(quirk: Quirk, today: date | None = None) -> bool:
    """Whether its last day is over."""
    if quirk.expires is None:
        return False
    now = today or datetime.now(timezone.utc).date()
    return date.fromisoformat(quirk.expires) < now


def _architecture(gpu_model: str | None) -> str | None:
    if not gpu_model:
        return None
    return next((name for name, pattern in _ARCHITECTURES if re.search(pattern, gpu_model)), None)


def _plain(architecture: str) -> str:
    """`SM120`, `sm_120` and `12.0` are one."""
    digits = re.sub(r"\D", "", architecture)
    return f"sm{digits}"


def _among(value: str | None, wanted: Sequence[str]) -> bool:
    return not wanted or value in wanted


def _is_or_in(value: object, wanted: object) -> bool:
    """Flags are compared as text: 8 and "8" are the same on a command line."""
    choices = wanted if isinstance(wanted, list) else [wanted]
    return str(value) in {str(choice) for choice in choices}
