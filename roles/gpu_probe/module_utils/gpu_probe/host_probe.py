"""The whole look at a host, in one call: called by the module gpu_probe_host.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import host_containers
from .cuda import tidy
from .host_driver import device_nodes, driver_facts, major_records, proc_devices
from .host_kernel_log import kernel_log
from .host_pci import gpu_inventory
from .host_processes import gpu_processes
from .limited import LimitedCall
from .nvml import look_at_nvml
from .reading import Reader, identity_facts, memory_facts

NVML_LIMIT_S = 10.0
NODE_MARGIN_S = 8.0


def probe_host(asked: dict[str, Any]) -> dict[str, Any]:
    """Everything that the diagnosis wants to know from the host. Changes nothing.

    `asked` has the module's parameters; see gpu_probe_host for their meaning.
    """
    started = time.monotonic()
    # Forked before there are threads.
    nvml = LimitedCall(lambda report: look_at_nvml(report, library=asked["nvml_library"]), NVML_LIMIT_S)
    reader = Reader()
    # `pct`, journalctl and modinfo take most of the time: they run side by side.
    with ThreadPoolExecutor(max_workers=8) as pool:
        log = pool.submit(kernel_log, reader)
        version = pool.submit(pve_version, reader)
        guests = pool.submit(host_containers.guests_still_starting, reader)
        driver = pool.submit(
            driver_facts,
            reader,
            proc_driver=asked["proc_driver"],
            sys_module=asked["sys_module"],
            modules_root=asked["modules_root"],
        )
        containers = {str(vmid): pool.submit(_container, reader, vmid, asked) for vmid in asked["vmids"]}
        evidence: dict[str, Any] = {
            **identity_facts(reader),
            "memory": memory_facts(reader),
            "proc_devices_path": asked["proc_devices"],
            "proc_devices": proc_devices(reader, asked["proc_devices"]),
            "major_records": major_records(reader, asked["major_records"]),
            "gpus": gpu_inventory(reader, asked["pci_devices"]),
            "processes": gpu_processes(reader),
            "kernel_log": log.result(),
            "driver": driver.result(),
            "pve_version": version.result(),
            "guests_starting": guests.result(),
            "containers": {vmid: future.result() for vmid, future in containers.items()},
        }
    texts = [one["config_text"] for one in evidence["containers"].values() if one["config_text"]]
    evidence["device_nodes"] = device_nodes(reader, texts, asked["dev"])
    evidence["nvml"] = tidy(nvml.result())
    evidence["unseen"] = reader.unseen
    evidence["seconds"] = round(time.monotonic() - started, 3)
    return evidence


def _container(reader: Reader, vmid: int, asked: dict[str, Any]) -> dict[str, Any]:
    facts = host_containers.container_facts(
        reader,
        vmid,
        conf_dir=asked["conf_dir"],
        pct=asked["pct"],
        ha_file=asked["ha_file"],
        cgroup_root=asked["cgroup_root"],
    )
    state = facts["status"]["state"]
    if state == "stopped":
        facts["start_log"] = host_containers.start_log(reader, vmid)
    elif state == "running" and asked["through_host"]:
        facts["node"] = host_containers.probe_through_host(
            reader,
            vmid,
            pct=asked["pct"],
            asked=asked["node"],
            limit_s=asked["node"].get("limit_s", 20.0) + NODE_MARGIN_S,
        )
    return facts


def pve_version(reader: Reader) -> dict[str, Any]:
    """'pve-manager/8.4.1/…' as text and as numbers; no numbers on a host without it."""
    answer = reader.command(["pveversion"])
    text = answer["stdout"].strip().splitlines()[0] if answer["stdout"].strip() else None
    if text is None:
        reader.missed("pveversion", answer["why"] or answer["stderr"].strip() or "no answer")
        return {"text": None, "numbers": None}
    parts = text.split("/")
    numbers = parts[1].split("-")[0].split(".") if len(parts) > 1 else []
    return {"text": text, "numbers": [int(number) for number in numbers if number.isdigit()]}
