"""Room for the model (memory limit, /dev/shm, GPU memory) and the GPUs' modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cause import CUDA_RESULTS, NEEDS_PERSON, NOTE, Finding, amount, cause
from .evidence import number, records, text, truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .case import Case

GROUP = "memory and modes"
# The driver's own share of a GPU and small helpers stay below this.
HELD_BYTES = 1 << 30
# They belong to the driver and hold no memory worth naming.
HELPERS = ("nvidia-persiste", "nv-fabricmanage", "nvidia-smi", "nv-hostengine", "dcgm-exporter", "nvtop")
OWN_UNIT = "inference-"
OUT_OF_MEMORY = 2


@cause(
    "memory_limit_below_model",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the container's memory limit is below the model: weights in /dev/shm count against it",
)
def memory_limit_below_model(case: Case) -> Iterator[Finding]:
    limits = {
        "live limit": number(case.container_facts, "live", "memory_max_bytes"),
        "limit in its file": case.container.memory_bytes if case.container is not None else None,
        "limit that it sees": number(case.inside, "limit_bytes"),
        "memory that it sees": number(case.inside, "memory", "MemTotal"),
    }
    known = {label: value for label, value in limits.items() if value is not None}
    if not case.model_bytes or not known:
        return
    label = min(known, key=lambda one: known[one])
    if known[label] < case.model_bytes:
        yield Finding(
            f"{case.node}'s {label} is {amount(known[label])}; the model alone needs "
            f"{amount(case.model_bytes)} and counts against it in /dev/shm. On {case.host_name}: "
            f"`pct set {case.vmid} --memory MIB`.",
            {"limits": known, "model_bytes": case.model_bytes},
        )


@cause(
    "shm_too_small",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the node's /dev/shm is smaller than the model",
)
def shm_too_small(case: Case) -> Iterator[Finding]:
    total = number(case.inside, "shm", "total_bytes")
    if case.model_bytes and total is None and case.inside:
        case.need("node", "shm", "total_bytes")
    if case.model_bytes and total is not None and total < case.model_bytes:
        path = text(case.inside, "shm", "path") or "/dev/shm"  # noqa: S108 - it is what we measure
        yield Finding(
            f"{path} of {case.node} holds {amount(total)}; the model needs {amount(case.model_bytes)}. Mount "
            f"it larger, as by `lxc.mount.entry: tmpfs dev/shm tmpfs "
            f"size={(case.model_bytes * 11 // 10 >> 20) + 1}M,create=dir 0 0`.",
            {
                "total_bytes": total,
                "free_bytes": number(case.inside, "shm", "free_bytes"),
                "options": text(case.inside, "shm", "options"),
                "model_bytes": case.model_bytes,
            },
        )


@cause(
    "gpu_memory_held",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="a process that isn't the engine holds GPU memory: named, with its container",
    explains=frozenset(("cuda_allocation_failed",)),
)
def gpu_memory_held(case: Case) -> Iterator[Finding]:
    wanted = set(case.wanted_gpu_paths)
    memory = _memory_by_pid(case)
    for process in records(case.host, "processes"):
        paths = wanted & {str(path) for path in process.get("files") or () if isinstance(path, str)}
        if not paths or _is_ours(case, process):
            continue
        used = memory.get(number(process, "pid") or -1)
        vmid = number(process, "vmid")
        where = f"container {vmid}" if vmid is not None else f"{case.host_name} itself"
        unit = f", {text(process, 'unit')}" if text(process, "unit") else ""
        much = f"{amount(used)} of GPU memory" if used is not None else "GPU devices open"
        blocks = (used or 0) >= HELD_BYTES or _out_of_memory(case)
        yield Finding(
            f"Process {number(process, 'pid')} ({text(process, 'name')}{unit}) of {where} holds {much} on "
            f"{', '.join(sorted(paths))}.",
            dict(process, used_bytes=used),
            severity="" if blocks else NOTE,
        )


def _is_ours(case: Case, process: Mapping[str, Any]) -> bool:
    if (text(process, "name") or "").startswith(HELPERS):
        return True
    return number(process, "vmid") == case.vmid and (text(process, "unit") or "").startswith(OWN_UNIT)


def _memory_by_pid(case: Case) -> dict[int, int]:
    """By the host's NVML, which alone knows the host's process ids."""
    found: dict[int, int] = {}
    for device in records(case.host, "nvml", "devices"):
        for process in records(device, "processes"):
            pid, used = number(process, "pid"), number(process, "used_bytes")
            if pid is not None and used is not None:
                found[pid] = found.get(pid, 0) + used
    return found


def _out_of_memory(case: Case) -> bool:
    return any(
        OUT_OF_MEMORY in (number(device, "context_result"), number(device, "allocation_result"))
        for device in records(case.inside, "cuda", "devices")
    )


@cause(
    "gpu_out_of_memory",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="a GPU has no memory left even for a small allocation, and no holder can be seen",
)
def gpu_out_of_memory(case: Case) -> Iterator[Finding]:
    holders = [
        one for one in records(case.host, "processes") if set(case.wanted_gpu_paths) & set(_files(one))
    ]
    if _out_of_memory(case) and not holders:
        yield Finding(
            f"A GPU of {case.node} has no memory left, and no process that holds it can be seen on "
            f"{case.host_name}.",
            {"devices": records(case.inside, "cuda", "devices")},
        )


def _files(process: Mapping[str, Any]) -> list[str]:
    files = process.get("files")
    return [one for one in files if isinstance(one, str)] if isinstance(files, list) else []


def _modes(case: Case) -> list[Mapping[str, Any]]:
    """Per GPU what NVML says, from inside if it can be had there, else from the host."""
    return records(case.inside, "nvml", "devices") or records(case.host, "nvml", "devices")


@cause(
    "gpu_mig_enabled",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="a GPU is in MIG mode: CUDA sees slices or nothing, not the whole GPU",
    explains=CUDA_RESULTS,
)
def gpu_mig_enabled(case: Case) -> Iterator[Finding]:
    for gpu in _modes(case):
        if truth(gpu, "mig", "current") is True:
            yield Finding(
                f"GPU {_label(gpu)} is in MIG mode, so it can't be used whole. On {case.host_name}: "
                f"`nvidia-smi -i {_label(gpu)} -mig 0`.",
                {"gpu": dict(gpu)},
            )


@cause(
    "gpu_compute_mode",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="a GPU's compute mode forbids (prohibited) or limits (exclusive: a note) its use",
    explains=CUDA_RESULTS,
)
def gpu_compute_mode(case: Case) -> Iterator[Finding]:
    for gpu in _modes(case):
        mode = text(gpu, "compute_mode")
        if mode not in (None, "default"):
            yield Finding(
                f"GPU {_label(gpu)} has compute mode {mode}"
                + (
                    ": no program can use it."
                    if mode == "prohibited"
                    else ": only one process at a time can use it."
                )
                + f" On {case.host_name}: `nvidia-smi -i {_label(gpu)} -c DEFAULT`.",
                {"gpu": dict(gpu)},
                severity="" if mode == "prohibited" else NOTE,
            )


@cause(
    "gpu_ecc_pending",
    group=GROUP,
    severity=NOTE,
    about="a GPU's ECC mode changes at the next reset, and with it its memory and speed",
)
def gpu_ecc_pending(case: Case) -> Iterator[Finding]:
    for gpu in _modes(case):
        now, later = truth(gpu, "ecc", "current"), truth(gpu, "ecc", "pending")
        if now is not None and later is not None and now != later:
            yield Finding(
                f"ECC of GPU {_label(gpu)} is {'on' if now else 'off'} and will be "
                f"{'on' if later else 'off'} after the "
                f"next reset.",
                {"gpu": dict(gpu)},
            )


def _label(gpu: Mapping[str, Any]) -> str:
    return text(gpu, "pci") or str(number(gpu, "index"))


@cause(
    "not_proven",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="no cause was found, but cuInit could not be asked either",
)
def not_proven(case: Case) -> Iterator[Finding]:
    if not case.cuda_works:
        blind = ", ".join(sorted({entry["what"] for entry in case.unseen})[:4])
        yield Finding(
            f"Nothing wrong was found for {case.node}, but cuInit(0) could not be seen to work"
            + (f" (not seen: {blind})." if blind else "."),
            {"cuda": text(case.inside, "cuda", "status")},
        )
