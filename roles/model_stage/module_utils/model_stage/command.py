"""The command lines of the stager and of its unit, from a model's description."""

from __future__ import annotations

from typing import Any

# Reads any cache, writes only below the root, sees no network. No MemoryMax: weights in tmpfs would count.
# Nothing that mounts a new /proc (ProtectKernelTunables, ProtectControlGroups, ProtectProc): LXC and lxcfs
# lay the container's own boot id and memory over the host's there, and both are read.
HARDENING = (
    "Type=exec",
    "AmbientCapabilities=CAP_DAC_READ_SEARCH",
    "CapabilityBoundingSet=CAP_DAC_READ_SEARCH",
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "PrivateTmp=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectClock=yes",
    "PrivateNetwork=yes",
    "RestrictAddressFamilies=AF_UNIX",
    "RestrictSUIDSGID=yes",
    "RestrictRealtime=yes",
    "LockPersonality=yes",
    "DevicePolicy=closed",
    "RestrictNamespaces=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "UMask=0022",
)


def unit_name(model: str) -> str:
    return f"model-stage-{model}.service"


def wanted(
    model: dict[str, Any], root: str, *, manifest: str | None, reserve_bytes: int, deep: bool
) -> list[str]:
    """The arguments that `stage` and `check` share; an operator can paste them."""
    found = ["--name", model["name"], "--root", root, "--revision", model.get("revision") or "main"]
    if model.get("repo"):
        found += ["--repo", model["repo"]]
    for source in model.get("sources") or []:
        found += ["--source", f"{source['kind']}={source['path']}"]
    for option in ("include", "exclude"):
        for pattern in model.get(option) or []:
            found += [f"--{option}", pattern]
    if manifest:
        found += ["--manifest", manifest]
    if reserve_bytes:
        found += ["--reserve-bytes", str(reserve_bytes)]
    return [*found, "--deep"] if deep else found


def stager(python: str, verb: str, arguments: list[str]) -> list[str]:
    """Run from the program's folder; neither the user's site-packages nor byte code matter."""
    return [python, "-s", "-B", "-m", "model_stager", verb, *arguments]


def systemd_run(model: str, command: list[str], *, folder: str, root: str, user: str) -> list[str]:
    """A transient unit: it outlives the connection, and systemd knows how it ended."""
    found = [
        "systemd-run",
        "--quiet",
        f"--unit={unit_name(model)}",
        f"--description=Stage {model} into {root}",
    ]
    properties = [*HARDENING, f"WorkingDirectory={folder}", f"ReadWritePaths={root}"]
    if user:
        properties.append(f"User={user}")
    return found + [f"--property={value}" for value in properties] + ["--", *command]


def setpriv(command: list[str], *, user: str) -> list[str]:
    """The same rights without systemd."""
    if not user:
        return command
    only = "-all,+dac_read_search"
    found = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
    return [*found, f"--inh-caps={only}", f"--ambient-caps={only}", f"--bounding-set={only}", "--", *command]
