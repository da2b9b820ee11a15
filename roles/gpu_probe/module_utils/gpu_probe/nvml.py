"""What libnvidia-ml says: driver version, and per GPU memory, modes and processes. By ctypes, in a child.

Runs on hosts and nodes: standard library and Python 3.9 only.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from .cuda import Library, library_file

LIBRARY = "libnvidia-ml.so.1"
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
UNKNOWN_MEMORY = (1 << 64) - 1
MOST_PROCESSES = 64


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Pci(ctypes.Structure):
    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


def look_at_nvml(report: Callable[[str, Any], None], *, library: str = LIBRARY) -> None:
    try:
        nvml = Library(library)
    except OSError as exc:
        report("library", None)
        report("library_error", str(exc))
        return
    report("library", library_file(library))
    result = nvml.call("nvmlInit_v2")
    report("init", result)
    if result != 0:
        return
    text = ctypes.create_string_buffer(96)
    if nvml.call("nvmlSystemGetDriverVersion", text, len(text)) == 0:
        report("driver_version", text.value.decode("ascii", "replace"))
    count = ctypes.c_uint(0)
    if nvml.call("nvmlDeviceGetCount_v2", ctypes.byref(count)) == 0:
        report("device_count", count.value)
    for index in range(count.value):
        report(f"device_{index}", _look_at_device(nvml, index))
    nvml.call("nvmlShutdown")


def _look_at_device(nvml: Library, index: int) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index}
    device = ctypes.c_void_p()
    found["handle_result"] = nvml.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
    if found["handle_result"] != 0:
        return found
    for key, function in (("uuid", "nvmlDeviceGetUUID"), ("name", "nvmlDeviceGetName")):
        text = ctypes.create_string_buffer(96)
        if nvml.call(function, device, text, len(text)) == 0:
            found[key] = text.value.decode("utf-8", "replace")
    pci = _Pci()
    if nvml.call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci)) == 0:
        # NVML writes an eight-digit domain, sysfs one of four.
        found["pci"] = pci.bus_id.decode("ascii", "replace").lower()[-12:]
    memory = _Memory()
    if nvml.call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory)) == 0:
        found["memory"] = {
            "total_bytes": memory.total,
            "free_bytes": memory.free,
            "used_bytes": memory.used,
        }
    found.update(_modes(nvml, device))
    processes = _processes(nvml, device)
    if processes is not None:
        found["processes"] = processes
    return found


def _modes(nvml: Library, device: ctypes.c_void_p) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, function in (("mig", "nvmlDeviceGetMigMode"), ("ecc", "nvmlDeviceGetEccMode")):
        now, next_boot = ctypes.c_uint(0), ctypes.c_uint(0)
        if nvml.call(function, device, ctypes.byref(now), ctypes.byref(next_boot)) == 0:
            found[key] = {"current": bool(now.value), "pending": bool(next_boot.value)}
    mode = ctypes.c_uint(0)
    if nvml.call("nvmlDeviceGetComputeMode", device, ctypes.byref(mode)) == 0:
        found["compute_mode"] = COMPUTE_MODES.get(mode.value, str(mode.value))
    if nvml.call("nvmlDeviceGetPersistenceMode", device, ctypes.byref(mode)) == 0:
        found["persistence"] = bool(mode.value)
    return found


def _processes(nvml: Library, device: ctypes.c_void_p) -> Any:  # noqa: ANN401 - a list or None
    size = ctypes.c_uint(MOST_PROCESSES)
    listed = (_Process * MOST_PROCESSES)()
    if nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(size), listed) != 0:
        return None
    return [
        {"pid": one.pid, "used_bytes": None if one.used == UNKNOWN_MEMORY else one.used}
        for one in listed[: size.value]
    ]
