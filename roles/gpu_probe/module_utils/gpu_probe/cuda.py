"""What libcuda says: cuInit, count, version, one small allocation per GPU. By ctypes, in a child.

Runs in nodes: standard library and Python 3.9 only.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import uuid
from pathlib import Path
from typing import Any, Callable

LIBRARY = "libcuda.so.1"
ALLOCATION_BYTES = 1 << 20
VERSION_IN_NAME = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


class Library:
    """A shared library whose functions may be missing: a call to one of those gives None."""

    def __init__(self, name: str) -> None:
        self._library = ctypes.CDLL(name)

    def call(self, function: str, *arguments: Any) -> int | None:  # noqa: ANN401 - what C takes
        try:
            symbol = getattr(self._library, function)
        except AttributeError:
            return None
        return int(symbol(*arguments))


def library_file(name: str) -> dict[str, Any]:
    """Where a library that is loaded now really lies, and the driver version in that name."""
    stem = Path(name).name.split(".so", 1)[0] + ".so"
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[5].strip() if line.count("/") else ""
            if Path(path).name.startswith(stem):
                real = str(Path(path).resolve())
                version = VERSION_IN_NAME.search(real)
                return {"path": path, "realpath": real, "version": version.group(1) if version else None}
    return {"path": name, "realpath": None, "version": None}


def look_at_cuda(report: Callable[[str, Any], None], *, allocate: bool, library: str = LIBRARY) -> None:
    """Report everything there is; stops where the driver stops."""
    for variable in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"):
        os.environ.pop(variable, None)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    report("step", "load")
    try:
        cuda = Library(library)
    except OSError as exc:
        report("library", None)
        report("library_error", str(exc))
        return
    report("library", library_file(library))
    report("step", "cuInit")
    result = cuda.call("cuInit", 0)
    report("cu_init", result)
    version = ctypes.c_int(0)
    if cuda.call("cuDriverGetVersion", ctypes.byref(version)) == 0:
        report("cuda_version", version.value)
    if result != 0:
        return
    report("step", "cuDeviceGetCount")
    count = ctypes.c_int(0)
    answer = cuda.call("cuDeviceGetCount", ctypes.byref(count))
    if answer is None:
        return
    report("count_result", answer)
    report("device_count", count.value)
    lock = threading.Lock()

    def look(index: int) -> None:
        found = _look_at_device(cuda, index, allocate=allocate)
        with lock:
            report(f"device_{index}", found)

    report("step", "devices")
    # ctypes lets go of the interpreter lock: eight contexts take little longer than one.
    threads = [threading.Thread(target=look, args=(index,)) for index in range(count.value)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report("step", "done")


def _look_at_device(cuda: Library, index: int, *, allocate: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index}
    device = ctypes.c_int(0)
    result = cuda.call("cuDeviceGet", ctypes.byref(device), index)
    if result is None:
        return found
    found["get_result"] = result
    if result != 0:
        return found
    name = ctypes.create_string_buffer(96)
    if cuda.call("cuDeviceGetName", name, len(name), device) == 0:
        found["name"] = name.value.decode("utf-8", "replace")
    raw = (ctypes.c_ubyte * 16)()
    if cuda.call("cuDeviceGetUuid", ctypes.byref(raw), device) == 0:
        found["uuid"] = f"GPU-{uuid.UUID(bytes=bytes(raw))}"
    bus = ctypes.create_string_buffer(32)
    if cuda.call("cuDeviceGetPCIBusId", bus, len(bus), device) == 0:
        found["pci"] = bus.value.decode("ascii", "replace").lower()
    total = ctypes.c_size_t(0)
    if cuda.call("cuDeviceTotalMem_v2", ctypes.byref(total), device) == 0:
        found["memory_bytes"] = total.value
    if allocate:
        found.update(_allocate(cuda, device))
    return found


def _allocate(cuda: Library, device: ctypes.c_int) -> dict[str, Any]:
    """One small allocation in a context of its own: proves more than cuInit, costs little."""
    context = ctypes.c_void_p()
    result = cuda.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    if result is None:
        return {}
    if result != 0:
        return {"context_result": result}
    found: dict[str, Any] = {"context_result": 0}
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    if cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)) == 0:
        found["free_bytes"] = free.value
    pointer = ctypes.c_uint64(0)
    found["allocation_result"] = cuda.call(
        "cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(ALLOCATION_BYTES)
    )
    if found["allocation_result"] == 0:
        cuda.call("cuMemFree_v2", pointer)
    cuda.call("cuCtxDestroy_v2", context)
    return found


def tidy(found: dict[str, Any]) -> dict[str, Any]:
    """Gather the streamed device_<n> keys into one list, in order."""
    devices = sorted((key for key in found if key.startswith("device_") and key[7:].isdigit()), key=_number)
    rest = {key: value for key, value in found.items() if key not in devices}
    rest["devices"] = [found[key] for key in devices]
    if rest.get("library") is None and rest["status"] == "ok":
        rest["status"] = "no_library"
    return rest


def _number(key: str) -> int:
    return int(key[7:])
