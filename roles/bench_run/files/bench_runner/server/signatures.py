"""What the last words of a dead server mean, by name; the first signature that matches is the cause."""

from __future__ import annotations

import re
from typing import Any

# Ordered: a more exact cause before a more general one.
_SIGNATURES = (
    ("cuda_illegal_instruction", r"an illegal instruction was encountered"),
    ("cuda_illegal_memory_access", r"illegal memory access"),
    ("cuda_out_of_memory", r"CUDA out of memory|OutOfMemoryError|Decode out of memory happened"),
    ("triton_out_of_resources", r"OutOfResources"),
    ("gpu_fell_off_bus", r"Xid.*: 79\b|fallen off the bus"),
    ("gpu_xid", r"NVRM: Xid"),
    ("scheduler_watchdog", r"Scheduler watchdog timeout"),
    ("died_during_initialization", r"died during initialization"),
    ("port_in_use", r"Address already in use|couldn't bind HTTP server socket"),
    ("scheduler_exception", r"Scheduler hit an exception"),
    ("model_not_found", r"No such file or directory|failed to load model|is not a file"),
    ("segmentation_fault", r"segfault|Segmentation fault"),
)


def signature(evidence: dict[str, Any]) -> str:
    """A name for how the server died: systemd's own verdict first, then the logs, else how it ended."""
    if evidence.get("Result") == "oom-kill":
        return "oom_kill"
    lines = [*evidence.get("journal", []), *evidence.get("kernel", [])]
    text = "\n".join(str(line) for line in lines)
    for name, pattern in _SIGNATURES:
        if re.search(pattern, text):
            return name
    result = str(evidence.get("Result", "unknown")).replace("-", "_")
    return f"ended_{result}_{evidence.get('ExecMainStatus', 'unknown')}".lower()
