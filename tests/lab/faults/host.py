"""Faults on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.lab import disks, drivers
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from tests.lab.faults.place import Place

UVM_NODES = "/dev/nvidia-uvm /dev/nvidia-uvm-tools"
NEWER_DRIVER = "580.105.08"


def uvm_major_moved(place: Place) -> str:
    settings = drivers.with_uvm(place.settings, "new", drivers.usable_donors())
    place.change_host(settings)
    return f"rebooted the host; nvidia-uvm moved from major {place.uvm_major} to {settings.uvm.major}"


def module_not_loaded(place: Place) -> str:
    place.save(replace(place.settings, uvm_loaded_at_boot=False))
    place.on_host("modprobe -r nvidia-uvm")
    place.restart()
    return "unloaded nvidia-uvm, also for the boots to come; restarted the container"


def device_node_missing(place: Place) -> str:
    place.on_host(f"rm -f {UVM_NODES}")
    place.restart()
    return f"removed {UVM_NODES} on the host, restarted the container"


def regular_file_for_node(place: Place) -> str:
    place.on_host(f"rm -f {UVM_NODES}; install -m 0000 /dev/null /dev/nvidia-uvm")
    place.restart()
    return "put a regular file in the place of /dev/nvidia-uvm on the host, restarted the container"


def driver_updated(place: Place) -> str:
    disks.give_libraries(place.host.name, NEWER_DRIVER)
    place.change_host(replace(place.settings, driver_version=NEWER_DRIVER))
    return f"rebooted the host into driver {NEWER_DRIVER}; the node's libraries are {drivers.DRIVER_VERSION}"


def driver_not_built(place: Place) -> str:
    place.change_host(replace(place.settings, driver_built=False))
    return "rebooted the host into a kernel that the driver was not built for"


def gpu_missing(place: Place) -> str:
    *left, lost = place.settings.gpus
    if not left:
        raise LabError(f"{place.host.name} has one GPU left; that one stays")
    place.change_host(replace(place.settings, gpus=tuple(left)))
    return f"rebooted the host without the GPU at {lost.pci}"


def container_stopped(place: Place) -> str:
    place.on_host(f"pct stop {place.node.vmid}")
    return "stopped the container"
