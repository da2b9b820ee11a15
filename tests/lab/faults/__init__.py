"""The faults that `break` makes: a table of data; each fault says what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.lab.errors import LabError
from tests.lab.faults import config, host, node
from tests.lab.faults.place import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.fleet import Host, Node


@dataclass(frozen=True)
class Fault:
    text: str
    make: Callable[[Place], str]


FAULTS = {
    # in the container's file on the host
    "uvm-rule-missing": Fault("the container's file has no rule for nvidia-uvm", config.uvm_rule_missing),
    "snapshot-only-rule": Fault("its rule stands in a snapshot section only", config.snapshot_only_rule),
    "ignored-line": Fault("its rule stands on a line that Proxmox ignores", config.ignored_line),
    "v1-rule": Fault("its rule is a cgroup v1 key, which does nothing", config.v1_rule),
    "stale-rule": Fault("a rule grants a major that another driver has now", config.stale_rule),
    "devn-missing-node": Fault("a devN entry has no node: no start", config.devn_missing_node),
    "locked-container": Fault("a backup holds the container's lock", config.locked_container),
    # on the host
    "uvm-major-moved": Fault("the host rebooted, nvidia-uvm has another major", host.uvm_major_moved),
    "module-not-loaded": Fault("nvidia-uvm is not loaded, now and after a boot", host.module_not_loaded),
    "device-node-missing": Fault("/dev/nvidia-uvm is missing on the host", host.device_node_missing),
    "regular-file-for-node": Fault("/dev/nvidia-uvm is a regular file", host.regular_file_for_node),
    "driver-updated": Fault("the host's driver is newer than the node's libraries", host.driver_updated),
    "driver-not-built": Fault("a new kernel runs, without the driver", host.driver_not_built),
    "gpu-missing": Fault("the last GPU is gone from the PCI bus", host.gpu_missing),
    "container-stopped": Fault("the container is stopped", host.container_stopped),
    # in the node
    "node-sshd-down": Fault("the node's sshd is stopped", node.sshd_down),
    "node-network-down": Fault("the node's network is down", node.network_down),
    "shm-too-small": Fault("/dev/shm of the node is smaller than the model", node.shm_too_small),
    "staged-model-truncated": Fault("a staged model lost its last 4096 bytes", node.staged_model_truncated),
    "engine-unit-model-path": Fault(
        "the engine's unit names a model that is not there", node.unit_model_path
    ),
}


def make(name: str, broken: Node, on: Host) -> str:
    """Make the fault and say what was done, in a sentence."""
    if name not in FAULTS:
        raise LabError(f"no fault {name!r}; there are: {', '.join(FAULTS)}")
    return f"{on.name}/{broken.name}: {FAULTS[name].make(place_of(broken, on))}"
