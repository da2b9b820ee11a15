"""A small nvidia-smi over the stand-in driver: lists, CSV queries, and the settings that a reboot resets.

Not modelled: the XML output, and queries other than those of `gpu_fields`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .nvml import Nvml, SmiError, bus_ids
from .settings import BAD_ARGUMENT, COMPUTE_MODES, POWER_W, SETTERS, change, settings

MIB = 2**20
Row = dict[str, tuple[str, str]]  # a field's value and its unit


def gpu_fields(gpu: dict[str, Any], version: str, count: int) -> Row:
    """Every field that `--query-gpu` knows here."""
    mine = settings(gpu["uuid"])
    memory = gpu["memory"]
    busy = bool(gpu["processes"])
    graphics = str(mine["clocks_mhz"][1]) if mine["clocks_mhz"] else ("2430" if busy else "180")
    memory_clock = str(mine["memory_clocks_mhz"][1]) if mine["memory_clocks_mhz"] else "14001"
    plain = {
        "count": str(count),
        "index": str(gpu["index"]),
        "name": gpu["name"],
        "gpu_name": gpu["name"],
        "uuid": gpu["uuid"],
        "gpu_uuid": gpu["uuid"],
        "pci.bus_id": gpu["bus_id"],
        "gpu_bus_id": gpu["bus_id"],
        "driver_version": version,
        "pstate": "P0" if busy else "P8",
        "persistence_mode": mine["persistence"],
        "compute_mode": COMPUTE_MODES[mine["compute"]],
        "ecc.mode.current": mine["ecc"],
        "ecc.mode.pending": mine["ecc_pending"],
        "mig.mode.current": mine["mig"],
        "mig.mode.pending": mine["mig_pending"],
        "pcie.link.gen.current": "5",
        "pcie.link.gen.max": "5",
        "pcie.link.width.current": "16",
        "pcie.link.width.max": "16",
        "temperature.gpu": "41",
        "clocks_event_reasons.active": "0x0000000000000001",
        "clocks_throttle_reasons.active": "0x0000000000000001",
    }
    measured = {
        "memory.total": (str(memory.total // MIB), "MiB"),
        "memory.used": (str(memory.used // MIB), "MiB"),
        "memory.free": (str(memory.free // MIB), "MiB"),
        "power.limit": (f"{mine['power_w']:.2f}", "W"),
        "power.default_limit": (f"{POWER_W[1]:.2f}", "W"),
        "power.min_limit": (f"{POWER_W[0]:.2f}", "W"),
        "power.max_limit": (f"{POWER_W[1]:.2f}", "W"),
        "power.draw": ("31.42", "W"),
        "utilization.gpu": ("0", "%"),
        "clocks.max.graphics": ("3090", "MHz"),
        "clocks.max.sm": ("3090", "MHz"),
        "clocks.max.memory": ("14001", "MHz"),
        **dict.fromkeys(("clocks.gr", "clocks.current.graphics"), (graphics, "MHz")),
        **dict.fromkeys(("clocks.sm", "clocks.current.sm"), (graphics, "MHz")),
        **dict.fromkeys(("clocks.mem", "clocks.current.memory"), (memory_clock, "MHz")),
    }
    return {**{name: (value, "") for name, value in plain.items()}, **measured}


def query(rows: list[Row], fields: list[str], options: set[str]) -> str:
    for field in fields:
        if rows and field not in rows[0]:
            raise SmiError(f'Field "{field}" is not a valid field to query.\n', BAD_ARGUMENT)
    lines = []
    units = "nounits" not in options
    if "noheader" not in options and rows:
        titles = [f"{field} [{rows[0][field][1]}]" if rows[0][field][1] else field for field in fields]
        lines.append(", ".join(titles))
    lines += [
        ", ".join(" ".join(filter(None, row[field])) if units else row[field][0] for field in fields)
        for row in rows
    ]
    return "\n".join(lines)


def apps(gpus: list[dict[str, Any]]) -> list[Row]:
    """A row for each process that holds a GPU; in a container only its own processes have names."""
    return [_app(gpu, process.pid, process.used) for gpu in gpus for process in gpu["processes"]]


def _app(gpu: dict[str, Any], pid: int, used: int) -> Row:
    program = Path(f"/proc/{pid}/exe")
    name = str(program.readlink()) if program.is_symlink() else "[Not Found]"
    memory = (str(used // MIB), "MiB")
    return {
        "gpu_uuid": (gpu["uuid"], ""),
        "gpu_bus_id": (gpu["bus_id"], ""),
        "gpu_name": (gpu["name"], ""),
        "pid": (str(pid), ""),
        "process_name": (name, ""),
        "name": (name, ""),
        "used_memory": memory,
        "used_gpu_memory": memory,
    }


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="nvidia-smi", allow_abbrev=False)
    options.add_argument("-L", "--list-gpus", action="store_true", dest="list")
    options.add_argument("-i", "--id")
    options.add_argument("--query-gpu")
    options.add_argument("--query-compute-apps")
    options.add_argument("--format", default="csv")
    options.add_argument("-pm", "--persistence-mode", dest="pm")
    options.add_argument("-pl", "--power-limit", dest="pl", type=float)
    options.add_argument("-lgc", "--lock-gpu-clocks", dest="lgc")
    options.add_argument("-rgc", "--reset-gpu-clocks", dest="rgc", action="store_true")
    options.add_argument("-lmc", "--lock-memory-clocks", dest="lmc")
    options.add_argument("-rmc", "--reset-memory-clocks", dest="rmc", action="store_true")
    options.add_argument("-c", "--compute-mode", dest="c")
    options.add_argument("-e", "--ecc-config", dest="e")
    options.add_argument("-mig", "--multi-instance-gpu", dest="mig")
    return options


def answer(wanted: argparse.Namespace) -> str:
    nvml = Nvml()
    gpus = nvml.gpus()
    buses = bus_ids()
    for gpu in gpus:
        gpu["bus_id"] = buses[gpu["minor"]]
    count = len(gpus)
    if wanted.id is not None:
        ids = set(wanted.id.split(","))
        gpus = [gpu for gpu in gpus if ids & {str(gpu["index"]), gpu["uuid"], gpu["bus_id"]}]
        if not gpus:
            raise SmiError("No devices were found", 6)
    options = set(wanted.format.split(","))
    if wanted.query_gpu:
        rows = [gpu_fields(gpu, nvml.driver_version(), count) for gpu in gpus]
        return query(rows, wanted.query_gpu.split(","), options)
    if wanted.query_compute_apps:
        return query(apps(gpus), wanted.query_compute_apps.split(","), options)
    if any(getattr(wanted, option) not in {None, False} for option in SETTERS):
        said = [line for gpu in gpus for line in change(gpu, wanted)]
        return "\n".join([*said, "All done."])
    if wanted.list:
        return "\n".join(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})" for gpu in gpus)
    lines = [
        f"NVIDIA-SMI {nvml.driver_version()}   Driver Version: {nvml.driver_version()}   CUDA Version: 13.0"
    ]
    for gpu in gpus:
        used, total = gpu["memory"].used // MIB, gpu["memory"].total // MIB
        lines.append(f"{gpu['index']}  {gpu['name']}  {gpu['bus_id']}  {used}MiB / {total}MiB")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    status = 0
    try:
        sys.stdout.write(answer(parser().parse_args(arguments)) + "\n")
    except SmiError as exc:
        sys.stdout.write(f"{exc}\n")
        status = exc.status
    return status
