#!/usr/bin/env python3
"""A stand-in for nvidia-smi that keeps its GPUs in a JSON file and speaks as drivers 550 to 580 do.

Answers `--query-gpu` and changes what -pm, -pl, -lgc, -rgc, -lmc, -rmc, -e, -mig and -c change, with the
real one's words, including its habit of ending with status 0 after "Treating as warning and moving on."
The file is named by NVIDIA_SMI_STATE; its `faults` make the tool fail in the ways seen in the field.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

DEFAULT_STATE = "/var/lib/lab/nvidia-smi.json"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n"
)
GOES_ON = "Treating as warning and moving on.\n"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
PERSISTENCE_WARNING = (
    "\nWarning: persistence mode is disabled on device {pci}. See the Known Issues section of the "
    "nvidia-smi(1) man page for more information. Run with [--help | -h] switch to get more information on "
    "how to enable persistence mode.\n"
)
STATUS_BAD_ARGUMENT = 2
STATUS_NO_PERMISSION = 4
STATUS_NOT_FOUND = 6
STATUS_NO_DRIVER = 9
STATUS_MISMATCH = 18
COMPUTE_MODES = ("DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS")
SWITCHES = {
    "persistence_mode",
    "ecc.mode.current",
    "ecc.mode.pending",
    "mig.mode.current",
    "mig.mode.pending",
}
WATTS = {"power.limit", "enforced.power.limit", "power.default_limit", "power.min_limit", "power.max_limit"}


def new_gpu(index: int, uuid: str, pci: str, name: str = "NVIDIA RTX PRO 6000 Blackwell") -> dict[str, Any]:
    """A card as it comes up after a boot. A field with a word such as `[N/A]` is one that the card lacks."""
    return {
        "index": index,
        "uuid": uuid,
        "pci.bus_id": pci,
        "name": name,
        "driver_version": "580.95.05",
        "persistence_mode": False,
        "ecc.mode.current": True,
        "ecc.mode.pending": True,
        "mig.mode.current": "[N/A]",
        "mig.mode.pending": "[N/A]",
        "compute_mode": "Default",
        "power.limit": 600.0,
        "power.default_limit": 600.0,
        "power.min_limit": 150.0,
        "power.max_limit": 600.0,
        "clocks.max.graphics": 3090,
        "clocks.max.memory": 14001,
        "clocks.current.graphics": 180,
        "clocks.current.memory": 405,
        "memory.used": 4,
        "memory.total": 97887,
        # What no query shows.
        "locked.graphics": None,
        "locked.memory": None,
        "memory_lock": True,  # Hopper and later have it only deferred
        "board_watts": 600.0,
        "busy": False,  # a MIG mode waits for a reset while somebody uses the card
    }


def new_state(gpus: int = 2) -> dict[str, Any]:
    return {
        "gpus": [
            new_gpu(
                n, f"GPU-0000000{n}-aaaa-bbbb-cccc-00000000000{n}", f"00000000:{0x41 + 0x20 * n:02X}:00.0"
            )
            for n in range(gpus)
        ],
        "faults": {},
        "calls": [],
    }


def reboot(state: dict[str, Any]) -> None:
    """What a reboot of the host does: ECC and MIG get what was pending, the rest is forgotten."""
    for gpu in state["gpus"]:
        fresh = new_gpu(gpu["index"], gpu["uuid"], gpu["pci.bus_id"])
        for field in ("persistence_mode", "compute_mode", "locked.graphics", "locked.memory", "busy"):
            gpu[field] = fresh[field]
        gpu["power.limit"] = gpu["power.default_limit"]
        for switch in ("ecc", "mig"):
            gpu[f"{switch}.mode.current"] = gpu[f"{switch}.mode.pending"]


class Ended(Exception):  # noqa: N818 - the end of a run, not an error
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Tool:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self.faults: dict[str, Any] = state["faults"]

    def run(self, arguments: list[str]) -> str:
        words = split_options(arguments)
        if self.faults.get("driver") == "not_loaded":
            raise Ended(STATUS_NO_DRIVER, NO_DRIVER)
        if self.faults.get("driver") == "mismatch":
            raise Ended(STATUS_MISMATCH, MISMATCH)
        if not self.state["gpus"]:
            raise Ended(STATUS_NOT_FOUND, "No devices were found\n")
        gpus = self.chosen(words.pop("-i", ""))
        if "--query-compute-apps" in words:
            return self.apps(words)
        if "--query-gpu" in words:
            return self.query(gpus, words)
        if len(words) != 1:
            raise Ended(STATUS_BAD_ARGUMENT, "Invalid combination of input arguments.\n")
        ((option, value),) = words.items()
        text = "".join(self.change(gpu, option, value) for gpu in gpus)
        quiet = [
            gpu
            for gpu in gpus
            if gpu["persistence_mode"] is False and option in ("-pl", "-lgc", "-lmc", "-mig")
        ]
        text += "".join(PERSISTENCE_WARNING.format(pci=gpu["pci.bus_id"]) for gpu in quiet)
        return text + "All done.\n" + ("Reboot required.\n" if option == "-e" else "")

    def chosen(self, ids: str) -> list[dict[str, Any]]:
        if not ids:
            return list(self.state["gpus"])
        found = []
        for wanted in ids.split(","):
            match = [
                gpu
                for gpu in self.state["gpus"]
                if wanted.lower() in (str(gpu["index"]), gpu["uuid"].lower(), gpu["pci.bus_id"].lower())
            ]
            if not match:
                raise Ended(STATUS_NOT_FOUND, "No devices were found\n")
            found += match
        return found

    def query(self, gpus: list[dict[str, Any]], words: dict[str, str]) -> str:
        asked = words["--query-gpu"].split(",")
        for field in asked:
            known = field in gpus[0] or field == "enforced.power.limit"
            if not known or field in self.faults.get("unknown_fields", ()) or field.startswith("locked."):
                raise Ended(STATUS_BAD_ARGUMENT, f'Field "{field}" is not a valid field to query.\n\n')
        form = words.get("--format", "").split(",")
        if "csv" not in form:
            raise Ended(
                STATUS_BAD_ARGUMENT, "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n"
            )
        units = "nounits" not in form
        lines = [] if "noheader" in form else [", ".join(asked)]
        lines += [", ".join(shown(gpu, field, units=units) for field in asked) for gpu in gpus]
        return "\n".join(lines) + "\n"

    def apps(self, words: dict[str, str]) -> str:
        """Processes with a CUDA context; in a container the real one may show none."""
        asked = words["--query-compute-apps"].split(",")
        apps = self.state.get("apps", [])
        return "".join(", ".join(str(app[field]) for field in asked) + "\n" for app in apps)

    def change(self, gpu: dict[str, Any], option: str, value: str) -> str:
        pci = gpu["pci.bus_id"]
        if self.faults.get("permissions"):
            what = "change power management limit" if option == "-pl" else "change this setting"
            raise Ended(
                STATUS_NO_PERMISSION,
                f"Unable to {what} for GPU {pci}: Insufficient Permissions\n"
                "Terminating early due to previous errors.\n",
            )
        change = {
            "-pm": persistence,
            "-e": ecc,
            "-mig": mig,
            "-c": compute_mode,
            "-pl": power_limit,
            "-lgc": lock_graphics,
            "-rgc": reset_graphics,
            "-lmc": lock_memory,
            "-rmc": reset_memory,
        }.get(option)
        if change is None:
            raise Ended(STATUS_BAD_ARGUMENT, f"Option {option} is not recognized.\n")
        if option in self.faults.get("ignored", ()):
            return change(json.loads(json.dumps(gpu)), value)
        return change(gpu, value)


def split_options(arguments: list[str]) -> dict[str, str]:
    """`--name=value` and `-n value`; the resets stand alone."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        option, sign, value = rest.pop(0).partition("=")
        if not sign and option not in ("-rgc", "-rmc"):
            value = rest.pop(0) if rest else ""
        found["-i" if option == "--id" else option] = value
    return found


def shown(gpu: dict[str, Any], field: str, *, units: bool) -> str:
    value = gpu.get(field)
    if field == "enforced.power.limit":
        limit = gpu["power.limit"]
        value = limit if isinstance(limit, str) else min(limit, gpu["board_watts"])
    if isinstance(value, bool):
        return "Enabled" if value else "Disabled"
    if isinstance(value, str):
        return value
    if field in WATTS:
        return f"{value:.2f}" + (" W" if units else "")
    unit = {"clocks": " MHz", "memory": " MiB"}.get(field.partition(".")[0], "")
    return f"{value}{unit if units else ''}"


def missing(gpu: dict[str, Any], field: str) -> bool:
    return isinstance(gpu[field], str)


def persistence(gpu: dict[str, Any], value: str) -> str:
    wanted = value in ("1", "ENABLED")
    word = "Enabled" if wanted else "Disabled"
    if gpu["persistence_mode"] is wanted:
        return f"Persistence mode is already {word} for GPU {gpu['pci.bus_id']}.\n"
    gpu["persistence_mode"] = wanted
    return f"{word} persistence mode for GPU {gpu['pci.bus_id']}.\n"


def ecc(gpu: dict[str, Any], value: str) -> str:
    if missing(gpu, "ecc.mode.pending"):
        return f"Changing ECC mode is not supported for GPU {gpu['pci.bus_id']}.\n{GOES_ON}"
    gpu["ecc.mode.pending"] = value == "1"
    return f"{'Enabled' if value == '1' else 'Disabled'} ECC support for GPU {gpu['pci.bus_id']}.\n"


def mig(gpu: dict[str, Any], value: str) -> str:
    pci, word = gpu["pci.bus_id"], "enable" if value == "1" else "disable"
    if missing(gpu, "mig.mode.pending"):
        return f"Unable to {word} MIG Mode for GPU {pci}: Not Supported\n{GOES_ON}"
    gpu["mig.mode.pending"] = value == "1"
    if gpu["busy"]:
        return (
            f"Warning: MIG mode is in pending {word} state for GPU {pci}:In use by another client\n"
            f"{pci} is currently being used by one or more other processes (e.g. CUDA application or a "
            "monitoring application such as another instance of nvidia-smi). Please first kill all processes "
            "using the device and retry the command or reboot the system to make MIG mode effective.\n"
        )
    gpu["mig.mode.current"] = gpu["mig.mode.pending"]
    return f"{word.capitalize()}d MIG Mode for GPU {pci}\n"


def compute_mode(gpu: dict[str, Any], value: str) -> str:
    name = COMPUTE_MODES[int(value)] if value.isdigit() else value
    if gpu["compute_mode"].upper() == name:
        return f"Compute mode is already set to {name} for GPU {gpu['pci.bus_id']}.\n"
    gpu["compute_mode"] = "_".join(word.capitalize() for word in name.split("_"))
    return f"Set compute mode to {name} for GPU {gpu['pci.bus_id']}.\n"


def power_limit(gpu: dict[str, Any], value: str) -> str:
    pci, watts = gpu["pci.bus_id"], float(value)
    if missing(gpu, "power.limit"):
        return f"Changing power management limit is not supported for GPU: {pci}.\n{GOES_ON}"
    if not gpu["power.min_limit"] <= watts <= gpu["power.max_limit"]:
        raise Ended(
            STATUS_BAD_ARGUMENT,
            f"Provided power limit {watts:.2f} W is not a valid power limit which should be between "
            f"{gpu['power.min_limit']:.2f} W and {gpu['power.max_limit']:.2f} W for GPU {pci}\n"
            "Terminating early due to previous errors.\n",
        )
    before, gpu["power.limit"] = gpu["power.limit"], watts
    return f"Power limit for GPU {pci} was set to {watts:.2f} W from {before:.2f} W.\n"


def lock_graphics(gpu: dict[str, Any], value: str) -> str:
    if missing(gpu, "clocks.max.graphics"):
        return f"Setting locked GPU clocks is not supported for GPU {gpu['pci.bus_id']}.\n{GOES_ON}"
    low, high = (min(int(end), gpu.get("clock_cap", 10**6)) for end in value.split(","))
    gpu["locked.graphics"] = [low, high]
    return f'GPU clocks set to "(gpuClkMin {low}, gpuClkMax {high})" for GPU {gpu["pci.bus_id"]}\n'


def lock_memory(gpu: dict[str, Any], value: str) -> str:
    if not gpu["memory_lock"]:
        return "This option is not supported. Please use --lock-memory-clocks-deferred instead.\n"
    low, high = (int(end) for end in value.split(","))
    gpu["locked.memory"] = [low, high]
    return f'Memory clocks set to "(memClkMin {low}, memClkMax {high})" for GPU {gpu["pci.bus_id"]}\n'


def reset_graphics(gpu: dict[str, Any], value: str) -> str:
    gpu["locked.graphics"] = None
    return ""


def reset_memory(gpu: dict[str, Any], value: str) -> str:
    gpu["locked.memory"] = None
    return ""


def main(arguments: list[str]) -> int:
    path = Path(os.environ.get("NVIDIA_SMI_STATE", DEFAULT_STATE))
    state: dict[str, Any] = json.loads(path.read_text())
    state["calls"].append(arguments)
    try:
        text, status = Tool(state).run(arguments), 0
    except Ended as end:
        text, status = end.text, end.status
    path.write_text(json.dumps(state, indent=1) + "\n")
    sys.stdout.write(text)
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
