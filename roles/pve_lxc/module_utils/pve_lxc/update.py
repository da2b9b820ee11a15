"""One container's file, from reading to writing: the same steps for the module and for the boot unit."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .backups import Backups, Records
from .conf import decode, encode, parse
from .edit import apply
from .nodes import container_nodes, gpu_minors, host_nodes, named_in
from .plan import version_of, wanted
from .rules import read_proc_devices
from .store import LOCK_LIMIT_S, ContainerFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .conf import Config
    from .situation import Plan

HOT_PLUG_SINCE = (9,)


@dataclass(frozen=True)
class Places:
    """Where things are on a Proxmox VE host; a test names other places."""

    conf_dir: Path = Path("/etc/pve/lxc")
    lock_dir: Path = Path("/run/lock/lxc")
    proc_devices: Path = Path("/proc/devices")
    driver_dir: Path = Path("/proc/driver/nvidia")
    dev_dir: Path = Path("/dev")
    backup_dir: Path = Path("/var/lib/recover-and-bench/backups")
    records: Path = Path("/var/lib/recover-and-bench/majors.json")

    def file_of(self, vmid: int) -> ContainerFile:
        return ContainerFile(self.conf_dir / f"{vmid}.conf", self.lock_dir)


@dataclass(frozen=True)
class Wishes:
    """What the operator asks for."""

    grant: str = "auto"
    extra_majors: Sequence[int] = ()
    former_majors: Sequence[int] = ()
    expected_gpus: int = 0  # 0: not known
    pve_version: str = ""
    lock_limit_s: float = LOCK_LIMIT_S
    hot_plug: bool = False  # the container runs and may be changed while it does


@dataclass
class Outcome:
    """`after` is what the file holds now, or would hold in check mode."""

    before: str
    after: str
    plan: Plan
    records_changed: bool
    deferred: dict[str, str]
    backup: str = ""

    @property
    def changed(self) -> bool:
        return self.before != self.after


def update(vmid: int, places: Places, wishes: Wishes, *, check: bool = False, expected: str = "") -> Outcome:
    """Bring the file into the wanted state. Raises PveLxcError; then the file is as it was."""
    file = places.file_of(vmid)
    records = Records(places.records)
    with contextlib.nullcontext() if check else file.locked(wishes.lock_limit_s):
        if expected:
            file.require_unchanged(expected)
        raw = file.read()
        config = parse(decode(raw))
        known = records.read()
        plan = plan_file(config, places, wishes, known)
        deferred = _defer(config, plan, wishes.pve_version) if wishes.hot_plug else {}
        after = encode(apply(config, plan.edit))
        outcome = Outcome(config.text, decode(after), plan, plan.records != known, deferred)
        if check:
            return outcome
        if outcome.records_changed:
            records.write(plan.records)
        if after != raw:
            outcome.backup = str(Backups(places.backup_dir, file.vmid).keep(raw, after))
            file.replace(raw, after)
    return outcome


def plan_file(config: Config, places: Places, wishes: Wishes, records: Mapping[str, Sequence[str]]) -> Plan:
    proc_devices = read_proc_devices(places.proc_devices)
    minors = gpu_minors(places.driver_dir, places.dev_dir, wishes.expected_gpus)
    nodes = host_nodes(proc_devices, minors)
    return wanted(
        config,
        proc_devices,
        wishes.grant,
        container_nodes(nodes, places.dev_dir, named_in(config), wishes.expected_gpus),
        extra_majors=wishes.extra_majors,
        former_majors=wishes.former_majors,
        records=records,
        pve_version=wishes.pve_version,
    )


def restore(
    vmid: int, places: Places, *, name: str = "", force: bool = False, check: bool = False
) -> tuple[str, str]:
    """(before, after): put the file back to what it was before our newest (or the named) change."""
    file = places.file_of(vmid)
    with contextlib.nullcontext() if check else file.locked():
        raw = file.read()
        after = Backups(places.backup_dir, file.vmid).to_restore(raw, name, force=force)
        if after != raw and not check:
            file.replace(raw, after)
    return decode(raw), decode(after)


def _defer(config: Config, plan: Plan, pve_version: str) -> dict[str, str]:
    """New devN entries for `pct set`, taken out of the edit: it plugs in what isn't in the file yet.

    Not where it can't, and not when its own write of the file would lose lines.
    """
    if config.ignored or version_of(pve_version) < HOT_PLUG_SINCE:
        return {}
    new = {key: value for key, value in plan.edit.set_keys.items() if key not in config.main.keys}
    for key in new:
        del plan.edit.set_keys[key]
    return new
