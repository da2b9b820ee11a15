"""Keys: one for the operator, one for each machine, and the known_hosts file by which they are checked."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.lab import paths

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fleet import Fleet

SSH_OPTIONS = """\
Host *
  User root
  IdentityFile {folder}/id
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  LogLevel ERROR
  ConnectTimeout 5
"""


def make_keys(fleet: Fleet) -> None:
    """Write the operator's key, the machines' keys, known_hosts and the ssh config that names them all."""
    folder = paths.SSH_DIR
    folder.mkdir(mode=0o700, exist_ok=True)
    _keygen(folder / "id", "lab operator")
    machines = fleet.machines
    known = []
    for machine in machines:
        _keygen(host_key(machine.name), f"root@{machine.name}")
        kind, key, *_ = host_key(machine.name).with_suffix(".pub").read_text().split()
        known.append(f"{machine.name},{machine.address} {kind} {key}\n")
    (folder / "known_hosts").write_text("".join(known))
    config = "".join(f"Host {machine.name}\n  HostName {machine.address}\n" for machine in machines)
    paths.SSH_CONFIG.write_text(config + SSH_OPTIONS.format(folder=folder))


def host_key(name: str) -> Path:
    return paths.SSH_DIR / f"host-{name}"


def operator_key() -> str:
    return (paths.SSH_DIR / "id.pub").read_text()


def _keygen(path: Path, comment: str) -> None:
    if not path.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], check=True)
