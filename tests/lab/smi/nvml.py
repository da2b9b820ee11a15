"""The stand-in libnvidia-ml, called as the real nvidia-smi calls the real one."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

NVML_MISMATCH = 18
NO_DRIVER = 9
NO_DRIVER_TEXT = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


class SmiError(Exception):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """The part of the stand-in libnvidia-ml that is used here."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        error = self.library.nvmlInit_v2()
        if error == NVML_MISMATCH:
            version = self._library_version()
            told = f"Driver/library version mismatch\nNVML library version: {version}"
            raise SmiError(f"Failed to initialize NVML: {told}", error)
        if error:
            raise SmiError(NO_DRIVER_TEXT, NO_DRIVER)

    def _library_version(self) -> str:
        text = ctypes.create_string_buffer(80)
        self.library.nvmlSystemGetNVMLVersion(text, len(text))
        return text.value.decode().partition(".")[2].rpartition(".")[0]

    def driver_version(self) -> str:
        text = ctypes.create_string_buffer(80)
        self.library.nvmlSystemGetDriverVersion(text, len(text))
        return text.value.decode()

    def gpus(self) -> list[dict[str, Any]]:
        count = ctypes.c_uint()
        self.library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return [self._gpu(index) for index in range(count.value)]

    def _gpu(self, index: int) -> dict[str, Any]:
        handle = ctypes.c_void_p()
        self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        self.library.nvmlDeviceGetName(handle, name, len(name))
        self.library.nvmlDeviceGetUUID(handle, uuid, len(uuid))
        memory = Memory()
        self.library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        processes = (Process * 64)()
        number = ctypes.c_uint(len(processes))
        self.library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(number), processes)
        minor = ctypes.c_uint()
        self.library.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor))
        return {
            "index": index,
            "name": name.value.decode(),
            "uuid": uuid.value.decode(),
            "minor": minor.value,
            "memory": memory,
            "processes": list(processes[: min(number.value, len(processes))]),
        }


def bus_ids() -> dict[int, str]:
    """The PCI address of each minor, written as nvidia-smi writes it."""
    found = {}
    for place in Path("/proc/driver/nvidia/gpus").iterdir():
        text = (place / "information").read_text()
        minor = int(text.partition("Device Minor:")[2].split()[0])
        found[minor] = f"0000{place.name}".upper()
    return found
