"""The campaign's unit: its name, its command, what it may touch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.bench_run.production import unit_properties

LIVE = ("active", "activating", "reloading", "deactivating")

# What a client of a local server needs: its folder, a socket to the control program, TCP to the server.
# ProtectKernelTunables= and ProtectControlGroups= would mount a new /proc, and with it hide the boot id that
# LXC lays over the machine's: the journal could not tell a restart of the container.
HARDENING = (
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "ProtectKernelModules=yes",
    "ProtectHostname=yes",
    "RestrictSUIDSGID=yes",
    "RestrictNamespaces=yes",
    # Netlink: NCCL lists the network's interfaces when GPUs are tried before a start.
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "LockPersonality=yes",
    "CapabilityBoundingSet=",
    "SystemCallArchitectures=native",
)
# A stop must be able to wait for the server's own stop.
STOP_S = 300


def unit_name(campaign: str) -> str:
    return f"bench-run-{campaign}.service"


def run_arguments(wanted: dict[str, Any]) -> list[str]:
    """The runner's arguments for `run` and `plan`, without the program and the verb."""
    arguments = [
        f"--dir={wanted['root']}/{wanted['campaign']}",
        f"--configurations={wanted['configurations_dir']}",
    ]
    arguments += [f"--{name}" for name in ("retry", "quick") if wanted.get(name)]
    return [*arguments, f"--deadline={wanted['deadline']}"] if wanted.get("deadline") else arguments


def api_keys(wanted: dict[str, Any]) -> list[tuple[str, str]]:
    """Credential and file of each planned server that wants a key: only root may read the files."""
    found = []
    for name in wanted["plan"].get("configurations", []):
        path = Path(wanted["configurations_dir"]) / f"{name}.json"
        try:
            described = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # the runner says so
        if isinstance(described, dict) and described.get("api_key_file"):
            found.append((f"{name}.api_key", str(described["api_key_file"])))
    return found


def start_command(wanted: dict[str, Any]) -> list[str]:
    """A transient unit: it outlives the connection, is gone when it ends, and is not started at boot."""
    properties = [
        "Type=exec",
        f"User={wanted['owner']}",
        f"Group={wanted['group']}",
        f"WorkingDirectory={wanted['root']}",
        f"ReadWritePaths={wanted['root']}",
        "NoNewPrivileges=yes",
        "UMask=0022",
        "KillMode=mixed",
        f"TimeoutStopSec={STOP_S}",
        "Environment=LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1",
        *(f"LoadCredential={name}:{path}" for name, path in api_keys(wanted)),
        *(HARDENING if wanted["hardened"] else ()),
        *unit_properties(list(wanted.get("stopped") or []), STOP_S),
    ]
    return [
        "systemd-run",
        f"--unit={unit_name(str(wanted['campaign']))}",
        "--quiet",
        "--collect",
        f"--description=Benchmark campaign {wanted['campaign']}",
        *(f"--property={each}" for each in properties),
        "--",
        str(wanted["python"]),
        "-I",
        "-m",
        "bench_runner",
        "run",
        *run_arguments(wanted),
        f"--control={wanted['control_socket']}",
    ]


def is_live(active_state: str) -> bool:
    return active_state in LIVE
