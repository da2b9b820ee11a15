"""The command lines of the stager and of its unit, from a model's description."""

from __future__ import annotations

from dataclasses import dataclass
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
    "RestrictSUIDSGID=yes",
    "RestrictRealtime=yes",
    "LockPersonality=yes",
    "DevicePolicy=closed",
    "RestrictNamespaces=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "UMask=0022",
)
NO_NETWORK = ("PrivateNetwork=yes", "RestrictAddressFamilies=AF_UNIX")
NETWORK = ("RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",)
# Kinds of sources that need a network, and what they name of themselves.
NETWORK_KINDS = ("http", "peer", "hub")
CREDENTIAL = "hub-token"


def unit_name(model: str) -> str:
    return f"model-stage-{model}.service"


def credential_path(model: str) -> str:
    """Where systemd lays the token for the unit alone, readable by its user only."""
    return f"/run/credentials/{unit_name(model)}/{CREDENTIAL}"


def needs_network(model: dict[str, Any]) -> bool:
    return any(source["kind"] in NETWORK_KINDS for source in model.get("sources") or [])


def asks_hub(model: dict[str, Any]) -> bool:
    return any(source["kind"] == "hub" for source in model.get("sources") or [])


def source_text(source: dict[str, Any]) -> str:
    """A rung of the ladder as the stager's command line has it."""
    kind = source["kind"]
    if kind == "hub":
        return f"hub={source['endpoint']}" if source.get("endpoint") else "hub"
    if kind == "http":
        return f"http={source['url']}"
    if kind == "peer":
        return f"peer={source['name']}={source['url']}"
    if kind == "absent":
        return f"absent={source['name']}={source['reason']}"
    return f"{kind}={source['path']}"


def wanted(
    model: dict[str, Any], root: str, *, manifest: str | None, reserve_bytes: int, deep: bool
) -> list[str]:
    """The arguments that `stage` and `check` share; an operator can paste them."""
    found = ["--name", model["name"], "--root", root, "--revision", model.get("revision") or "main"]
    if model.get("repo"):
        found += ["--repo", model["repo"]]
    for source in model.get("sources") or []:
        found += ["--source", source_text(source)]
    for option in ("include", "exclude"):
        for pattern in model.get(option) or []:
            found += [f"--{option}", pattern]
    if manifest:
        found += ["--manifest", manifest]
    if reserve_bytes:
        found += ["--reserve-bytes", str(reserve_bytes)]
    return [*found, "--deep"] if deep else found


def token(model: dict[str, Any], token_file: str) -> list[str]:
    """Only for a model that the hub is asked for: the path of the token, never the token."""
    return ["--token-file", token_file] if token_file and asks_hub(model) else []


def stager(python: str, verb: str, arguments: list[str]) -> list[str]:
    """Run from the program's folder; neither the user's site-packages nor byte code matter."""
    return [python, "-s", "-B", "-m", "model_stager", verb, *arguments]


@dataclass(frozen=True)
class Setting:
    """Where the stager of a model runs, as whom, and what it may see."""

    folder: str
    root: str
    user: str
    network: bool = False
    token_file: str = ""  # of the hub; empty where it is not asked
    writable: tuple[str, ...] = ()  # beside the root


def systemd_run(model: str, command: list[str], setting: Setting) -> list[str]:
    """A transient unit: it outlives the connection, and systemd knows how it ended."""
    found = [
        "systemd-run",
        "--quiet",
        f"--unit={unit_name(model)}",
        f"--description=Stage {model} into {setting.root}",
    ]
    properties = [*HARDENING, *(NETWORK if setting.network else NO_NETWORK)]
    writable = " ".join((setting.root, *setting.writable))
    properties += [f"WorkingDirectory={setting.folder}", f"ReadWritePaths={writable}"]
    if setting.token_file:
        properties.append(f"LoadCredential={CREDENTIAL}:{setting.token_file}")
    if setting.user:
        properties.append(f"User={setting.user}")
    return found + [f"--property={value}" for value in properties] + ["--", *command]


def setpriv(command: list[str], *, user: str) -> list[str]:
    """The same rights without systemd."""
    if not user:
        return command
    only = "-all,+dac_read_search"
    found = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
    return [*found, f"--inh-caps={only}", f"--ambient-caps={only}", f"--bounding-set={only}", "--", *command]
