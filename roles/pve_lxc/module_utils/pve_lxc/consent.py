"""Whom a restart would hurt: looked for, named, and asked about."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from .conf import decode, parse
from .errors import PveLxcError, Refused
from .holders import Holder, gpu_holders

if TYPE_CHECKING:
    from pathlib import Path

    from .container import Container


@dataclass(frozen=True)
class Consent:
    """What to look for, and whether the operator has said to go on all the same."""

    conf_dir: Path
    dev_dir: Path
    campaign_units: list[str]
    own_units: list[str]
    force: bool

    def require_unlocked(self, vmid: str) -> None:
        path = self.conf_dir / f"{vmid}.conf"
        try:
            lock = parse(decode(path.read_bytes())).main.keys.get("lock")
        except OSError as exc:
            raise PveLxcError(f"{path} can't be read: {exc.strerror}") from exc
        if lock:
            raise Refused(
                f"container {vmid} is locked ({lock}) by an operation of Proxmox: wait until that ends, or "
                f"see `pct unlock {vmid}` if it never will"
            )

    def others_on_gpus(self) -> list[Holder]:
        return [
            holder
            for holder in gpu_holders(self.dev_dir)
            if not any(fnmatch(holder.unit, f"{unit}.service") for unit in self.own_units)
        ]

    def require(self, what: str, against: list[str]) -> None:
        if against and not self.force:
            raise Refused(
                f"{what} would end this: {'; '.join(against)}. Let it finish or stop it; to go on all the "
                "same, set pve_lxc_force: true"
            )


def require_restart(consent: Consent, container: Container, *, allowed: bool) -> None:
    consent.require_unlocked(container.vmid)
    if container.status() != "running":
        return  # then a restart is a start: it ends nothing
    if not allowed:
        raise Refused(
            f"container {container.vmid} must be restarted, which needs consent: set "
            "pve_lxc_restart_allowed: true"
        )
    holders = [str(holder) for holder in consent.others_on_gpus() if holder.vmid == container.vmid]
    consent.require(f"a restart of container {container.vmid}", [*_campaigns(consent, container), *holders])


def require_host_idle(consent: Consent, container: Container, *, allowed: bool) -> None:
    """A reboot of the host takes every container down with it."""
    if not allowed:
        raise Refused(
            "the host must be rebooted, which stops every container on it: set "
            "pve_lxc_host_reboot_allowed: true"
        )
    ids = sorted(path.stem for path in consent.conf_dir.glob("[0-9]*.conf"))
    against = [str(holder) for holder in consent.others_on_gpus()]
    for vmid in ids:
        consent.require_unlocked(vmid)
        against += _campaigns(consent, container.sibling(vmid))
    consent.require("a reboot of the host", against)


def _campaigns(consent: Consent, container: Container) -> list[str]:
    if container.status() != "running":
        return []
    units = container.running_units(consent.campaign_units)
    return [f"the campaign {unit} in container {container.vmid}" for unit in units]
