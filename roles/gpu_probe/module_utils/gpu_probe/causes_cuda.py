"""CUDA's own answers: the library, cuInit, the count, and whatever nothing else explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cause import CUDA_RESULTS, NEEDS_PERSON, REPAIRABLE, Finding, cause
from .evidence import mapping, number, records, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .case import Case

GROUP = "CUDA"
NVML_MISMATCH = 18
MISMATCHES = {803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"}
STUB = 34
NO_DEVICE = 100
NOT_READY = 802
OUT_OF_MEMORY = 2


@cause(
    "driver_library_missing",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="libcuda.so.1 can't be loaded in the node",
    explains=CUDA_RESULTS,
)
def driver_library_missing(case: Case) -> Iterator[Finding]:
    if case.cuda_status == "no_library":
        version = text(case.host, "driver", "version") or "the host's version"
        yield Finding(
            f"{case.node} has no libcuda.so.1. Install the driver's libraries of version {version} in it, "
            f"without "
            f"the kernel module (`--no-kernel-module`).",
            {
                "library_error": text(case.inside, "cuda", "library_error"),
                "driver": text(case.host, "driver", "version"),
            },
        )


@cause(
    "cuda_stub_library",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the libcuda that is found is the toolkit's stub (34)",
    explains=CUDA_RESULTS,
)
def cuda_stub_library(case: Case) -> Iterator[Finding]:
    if case.cu_init == STUB:
        yield Finding(
            f"{case.node} finds the CUDA toolkit's stub "
            f"({text(case.inside, 'cuda', 'library', 'realpath')}) in place "
            f"of the driver's libcuda. Remove it from the library path.",
            {"cu_init": STUB, "library": mapping(case.inside, "cuda", "library")},
        )


@cause(
    "driver_library_mismatch",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the node's libraries and the host's loaded module are of different versions (803, 804)",
    explains=CUDA_RESULTS,
)
def driver_library_mismatch(case: Case) -> Iterator[Finding]:
    library = text(case.inside, "cuda", "library", "version")
    module = text(case.host, "driver", "version") or text(case.inside, "module_version")
    differ = bool(library and module and library != module)
    result = case.cu_init
    said = MISMATCHES.get(result or 0)
    by_nvml = number(case.inside, "nvml", "init") == NVML_MISMATCH
    if not (differ or said or by_nvml) or (differ and case.cuda_works):
        return  # CUDA's forward compatibility packages differ on purpose, and work
    on_disk = text(case.host, "driver", "module_file", "version")
    proof = {
        "library": library,
        "module": module,
        "module_on_disk": on_disk,
        "cu_init": result,
        "nvml_init": number(case.inside, "nvml", "init"),
    }
    outcome = f"cuInit(0) is {result} ({said})" if said else f"cuInit(0) is {result}"
    if library and library == on_disk and differ:
        yield Finding(
            f"{case.node}'s libcuda is {library}, as is the driver installed on {case.host_name}, but "
            f"{module} is "
            f"still loaded there: {outcome}. A reboot of the host loads {on_disk}.",
            proof,
            severity=REPAIRABLE,
            repair="reboot_host",
        )
    elif differ:
        yield Finding(
            f"{case.node}'s libcuda is {library}, {case.host_name}'s driver {module}: {outcome}. Install the "
            f"libraries of {module} in {case.node} (`--no-kernel-module`).",
            proof,
        )
    else:
        yield Finding(
            f"{case.node}'s libcuda ({library or 'version unknown'}) does not fit {case.host_name}'s driver "
            f"({module or 'version unknown'}): {outcome}. Is a cuda-compat library in the way?",
            proof,
        )


@cause(
    "fabric_not_ready",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="802: the NVSwitch fabric isn't ready (nvidia-fabricmanager on the host)",
    explains=CUDA_RESULTS,
)
def fabric_not_ready(case: Case) -> Iterator[Finding]:
    if case.cu_init == NOT_READY:
        yield Finding(
            f"cuInit(0) is 802 in {case.node}: the NVSwitch fabric is not ready. On {case.host_name}: "
            f"`systemctl status nvidia-fabricmanager`; its version must be the driver's.",
            {"cu_init": NOT_READY, "driver": text(case.host, "driver", "version")},
        )


@cause(
    "cuda_timeout",
    group=GROUP,
    severity=REPAIRABLE,
    repair="reboot_host",
    about="CUDA did not answer within the limit: the driver hangs",
    explains=CUDA_RESULTS,
)
def cuda_timeout(case: Case) -> Iterator[Finding]:
    if case.cuda_status == "timeout":
        step = text(case.inside, "cuda", "step") or "start"
        limit = mapping(case.inside, "cuda").get("limit_s")
        pid = number(case.inside, "cuda", "abandoned_pid")
        left = f" (process {pid} can't even be killed)" if pid is not None else ""
        yield Finding(
            f"CUDA in {case.node} did not answer within {limit} s, in step {step}{left}: the driver hangs.",
            {key: value for key, value in mapping(case.inside, "cuda").items() if key != "devices"},
        )


@cause(
    "cuda_crashed",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="libcuda crashed the probe's process",
    explains=CUDA_RESULTS,
)
def cuda_crashed(case: Case) -> Iterator[Finding]:
    if case.cuda_status in ("crashed", "failed"):
        how = text(case.inside, "cuda", "signal") or text(case.inside, "cuda", "error") or "no reason given"
        yield Finding(
            f"libcuda in {case.node} crashed in step {text(case.inside, 'cuda', 'step')} ({how}).",
            {key: value for key, value in mapping(case.inside, "cuda").items() if key != "devices"},
        )


@cause(
    "cuda_no_device",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="100 or a count of 0, and nothing else explains it",
    explains=CUDA_RESULTS - {"cuda_no_device"},
)
def cuda_no_device(case: Case) -> Iterator[Finding]:
    if case.cu_init == NO_DEVICE or (case.cuda_works and number(case.inside, "cuda", "device_count") == 0):
        yield Finding(
            f"CUDA in {case.node} sees no GPU (cuInit(0) is {case.cu_init}), though every device node opens.",
            {"cu_init": case.cu_init, "device_count": number(case.inside, "cuda", "device_count")},
        )


@cause(
    "cuda_unknown",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="cuInit fails (999 or another number), and nothing else explains it",
    explains=CUDA_RESULTS - {"cuda_unknown"},
)
def cuda_unknown(case: Case) -> Iterator[Finding]:
    named = (None, 0, NO_DEVICE, STUB, NOT_READY, *MISMATCHES)
    if case.cu_init not in named:
        yield Finding(
            f"cuInit(0) is {case.cu_init} in {case.node}, though every device node opens and the versions "
            f"agree. "
            f"Look at the host's kernel log (`journalctl -k -b | grep NVRM`).",
            {"cu_init": case.cu_init, "library": mapping(case.inside, "cuda", "library")},
        )


@cause(
    "gpu_missing_in_node",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="CUDA works, but sees fewer GPUs than expected, and nothing else explains it",
)
def gpu_missing_in_node(case: Case) -> Iterator[Finding]:
    count = number(case.inside, "cuda", "device_count")
    if case.cuda_works and count is not None and 0 < count < case.expected_gpus:
        yield Finding(
            f"CUDA in {case.node} sees {count} of {case.expected_gpus} GPUs.",
            {
                "device_count": count,
                "expected": case.expected_gpus,
                "devices": records(case.inside, "cuda", "devices"),
            },
        )


@cause(
    "cuda_allocation_failed",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="cuInit works, but a GPU refuses a small allocation (other than for lack of memory)",
)
def cuda_allocation_failed(case: Case) -> Iterator[Finding]:
    for device in records(case.inside, "cuda", "devices"):
        for key in ("get_result", "context_result", "allocation_result"):
            result = number(device, key)
            if result not in (None, 0, OUT_OF_MEMORY):
                yield Finding(
                    f"GPU {number(device, 'index')} in {case.node} refuses a small allocation "
                    f"({key.replace('_', ' ')} {result}).",
                    {"device": dict(device)},
                )
                break
