"""Give published models to other nodes for the time of their copy, and say what there is to give."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import command

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]

UNIT = "model-serve.service"
START_S = 5.0
# Published models can be read by everybody, so nothing is granted.
HARDENING = (
    *(value for value in command.HARDENING if not value.startswith(("AmbientCap", "CapabilityB"))),
    *command.NETWORK,
    "CapabilityBoundingSet=",
    "MemoryMax=256M",
)


class ServeError(Exception):
    """This node can't serve now; the message says why."""


@dataclass(frozen=True)
class Server:
    """What is served, where, and to whom."""

    root: str
    address: str
    port: int
    allow: tuple[str, ...]
    user: str
    limit_s: int

    @property
    def url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"

    @property
    def description(self) -> str:
        """By it the next run sees whether a server that is still there will do."""
        return f"Serve {self.root} at {self.url} to {' '.join(self.allow)}"


def start(run: Run, server: Server, python: str, folder: str) -> str:
    """Return the invocation of the unit that serves; one that does already is kept."""
    shown = show(run)
    if shown.get("ActiveState") == "active" and shown.get("Description") == server.description:
        return shown["InvocationID"]
    run(["systemctl", "stop", UNIT])
    run(["systemctl", "reset-failed", UNIT])
    arguments = ["--root", server.root, "--listen", _listen(server)]
    for address in server.allow:
        arguments += ["--allow", address]
    argv = ["systemd-run", "--quiet", f"--unit={UNIT}", f"--description={server.description}"]
    properties = [*HARDENING, f"WorkingDirectory={folder}", f"RuntimeMaxSec={server.limit_s}"]
    if server.user:
        properties.append(f"User={server.user}")
    argv += [f"--property={value}" for value in properties]
    rc, out, err = run([*argv, "--", *command.stager(python, "serve", arguments)])
    if rc:
        raise ServeError(f"{UNIT} could not be started: {(err or out).strip()}")
    return _wait(run, server)


def _listen(server: Server) -> str:
    return f"{f'[{server.address}]' if ':' in server.address else server.address}:{server.port}"


def _wait(run: Run, server: Server) -> str:
    """Until it takes a connection, or has ended and said why."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        shown = show(run)
        if shown.get("ActiveState") != "active":
            break
        try:
            socket.create_connection((server.address, server.port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return shown["InvocationID"]
    _, log, _ = run(["journalctl", "--unit", UNIT, "--lines", "2", "--output", "cat", "--no-pager"])
    said = " / ".join(log.strip().splitlines())
    run(["systemctl", "stop", UNIT])
    raise ServeError(f"{UNIT} does not serve at {server.url}: {said or 'it says nothing'}")


def stop(run: Run, invocation: str) -> bool:
    """End the unit, unless it is another run's by now; whether there was anything to end."""
    shown = show(run)
    if (
        shown.get("ActiveState") in (None, "", "inactive", "failed")
        or shown.get("InvocationID") != invocation
    ):
        return False
    run(["systemctl", "stop", UNIT])
    return True


def show(run: Run) -> dict[str, str]:
    wanted = "--property=ActiveState,InvocationID,Description"
    _, out, _ = run(["systemctl", "show", wanted, UNIT])
    return dict(line.partition("=")[::2] for line in out.splitlines())


def holdings(run: Run, root: str, names: list[str], python: str, folder: str) -> list[dict[str, Any]]:
    """The models that are published and proven here, with what was asked for when they were staged."""
    found = []
    for name in names:
        record = _read(Path(root, f"{name}.proof.json"))
        manifest = _read(Path(root, f"{name}.manifest.json"))
        if not record or not manifest:
            continue
        rc, _, _ = run(command.stager(python, "verify", ["--name", name, "--root", root]), cwd=folder)
        if rc == 0:
            offer = {"name": name, "digest": manifest.get("digest"), "commit": manifest.get("revision")}
            found.append({**offer, "identity": record.get("request") or {}})
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
