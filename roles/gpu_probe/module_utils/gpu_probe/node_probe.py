"""The whole look into a node: by the module gpu_probe_node, or sent through `pct exec` (see bundle.py).

Runs in nodes: standard library and Python 3.9 only.
"""

from __future__ import annotations

import platform
import time
from typing import Any

from .cuda import look_at_cuda, tidy
from .limited import LimitedCall
from .node_facts import (
    cpu_facts,
    id_map,
    memory_limit,
    network_facts,
    open_device_nodes,
    shm_facts,
    tidy_nodes,
)
from .nvml import look_at_nvml
from .reading import Reader, identity_facts, memory_facts, module_version

# As Ansible declares arguments: what comes from a command line are words, also on the way through the host.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "gpus": {"type": "int", "default": 1},
    "limit_s": {"type": "float", "default": 20.0},
    "allocate": {"type": "bool", "default": True},
    "dev": {"type": "path", "default": "/dev"},
    "shm": {"type": "path", "default": "/dev/shm"},  # noqa: S108 - it is what we measure
    "cuda_library": {"type": "str", "default": "libcuda.so.1"},
    "nvml_library": {"type": "str", "default": "libnvidia-ml.so.1"},
    "driver_version_file": {"type": "path", "default": "/proc/driver/nvidia/version"},
}
DEFAULTS: dict[str, Any] = {name: argument["default"] for name, argument in ARGUMENTS.items()}


def probe_node(asked: dict[str, Any]) -> dict[str, Any]:
    """Everything that the diagnosis wants to know from inside the node. Changes nothing."""
    started = time.monotonic()
    wants = {**DEFAULTS, **{key: value for key, value in asked.items() if value is not None}}
    # The three children look at the same time; the opener first, since it is what explains the others.
    opener = LimitedCall(
        lambda report: open_device_nodes(report, gpus=wants["gpus"], dev=wants["dev"]), wants["limit_s"]
    )
    cuda = LimitedCall(
        lambda report: look_at_cuda(report, allocate=wants["allocate"], library=wants["cuda_library"]),
        wants["limit_s"],
    )
    nvml = LimitedCall(lambda report: look_at_nvml(report, library=wants["nvml_library"]), wants["limit_s"])
    reader = Reader()
    evidence: dict[str, Any] = {
        **identity_facts(reader),
        "python": platform.python_version(),
        **id_map(reader),
        **cpu_facts(),
        **memory_limit(reader),
        **network_facts(reader),
        "memory": memory_facts(reader),
        "shm": shm_facts(reader, wants["shm"]),
        "module_version": module_version(reader, wants["driver_version_file"]),
    }
    opened = opener.result()
    for blind in opened.get("unseen", []):
        reader.missed(blind["what"], blind["why"])
    evidence["nodes_status"] = opened["status"]
    evidence["device_nodes"] = tidy_nodes(opened)
    evidence["cuda"] = tidy(cuda.result())
    evidence["nvml"] = tidy(nvml.result())
    evidence["unseen"] = reader.unseen
    evidence["seconds"] = round(time.monotonic() - started, 3)
    return evidence
