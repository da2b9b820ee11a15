"""What is deployed on a node compared with what is wanted there: files, units that are gone, what to tell."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from .configurations import unit_name
from .units import MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Where a running systemd reads units from; another folder is a rehearsal, of which it need not be told.
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system")
QUIET = ("inactive", "failed", "")
UNIT_FILE = re.compile(r"\.(service|socket)$")

Systemctl = Callable[["Sequence[str]"], str]


@dataclass(frozen=True)
class WantedFile:
    path: Path
    content: str
    mode: int

    @property
    def is_unit(self) -> bool:
        return UNIT_FILE.search(self.path.name) is not None


@dataclass
class Change:
    """A file before and after; None where there is no file."""

    path: Path
    before: str | None
    after: str | None
    mode: int = 0o644
    old_mode: int | None = None

    @property
    def is_unit(self) -> bool:
        return UNIT_FILE.search(self.path.name) is not None

    def diff(self) -> dict[str, str]:
        modes = f" (mode {self.old_mode:04o})" if self.old_mode is not None else ""
        return {
            "before_header": f"{self.path}{modes}",
            "after_header": f"{self.path} (mode {self.mode:04o})" if self.after is not None else "removed",
            "before": self.before or "",
            "after": self.after or "",
        }


@dataclass
class State:
    """What systemd says of the units that concern us."""

    active: Mapping[str, str] = field(default_factory=dict)
    enabled: Mapping[str, str] = field(default_factory=dict)
    stale: tuple[str, ...] = ()

    def runs(self, unit: str) -> bool:
        return self.active.get(unit, "") not in QUIET


def compare(wanted: Sequence[WantedFile]) -> list[Change]:
    """The wanted files that aren't there as wanted, in their order."""
    changes = []
    for file in wanted:
        try:
            before: str | None = file.path.read_text(encoding="utf-8", errors="replace")
            mode: int | None = stat.S_IMODE(file.path.stat().st_mode)
        except FileNotFoundError:
            before, mode = None, None
        if before != file.content or mode != file.mode:
            changes.append(Change(file.path, before, file.content, file.mode, mode))
    return changes


def find_gone(unit_dir: Path, description_dir: Path, names: Sequence[str]) -> dict[str, list[Path]]:
    """Files of configurations that are no longer wanted, by configuration: description first, then unit.

    A unit is ours only when our marker is in it; a description, when it lies in our folder.
    """
    gone: dict[str, list[Path]] = {}
    for path in sorted(description_dir.glob("*.json")):
        if path.stem not in names:
            gone.setdefault(path.stem, []).append(path)
    for path in sorted(unit_dir.glob("inference-*.service")):
        name = path.name[len("inference-") : -len(".service")]
        if "@" in name or name in names:
            continue
        if MARKER in path.read_text(encoding="utf-8", errors="replace"):
            gone.setdefault(name, []).append(path)
    return gone


def removals(paths: Sequence[Path]) -> list[Change]:
    return [
        Change(
            path,
            path.read_text(encoding="utf-8", errors="replace"),
            None,
            0,
            stat.S_IMODE(path.stat().st_mode),
        )
        for path in paths
    ]


def read_state(units: Sequence[str], systemctl: Systemctl) -> State:
    """One call for all units; systemd answers in blocks with an empty line between."""
    text = systemctl(["show", "--property=Id,ActiveState,UnitFileState,NeedDaemonReload", "--", *units])
    active, enabled, stale = {}, {}, []
    for block in text.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        unit = values.get("Id", "")
        active[unit] = values.get("ActiveState", "")
        enabled[unit] = values.get("UnitFileState", "")
        if values.get("NeedDaemonReload") == "yes":
            stale.append(unit)
    return State(active, enabled, tuple(stale))


def apply_change(change: Change) -> None:
    """Write whole or not at all; a reader never sees half a file."""
    if change.after is None:
        change.path.unlink(missing_ok=True)
        return
    change.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    partial = change.path.with_name(f".{change.path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(change.after)
        os.fchmod(file.fileno(), change.mode)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(change.path)


def missing_programs(changes: Sequence[Change]) -> list[str]:
    """Programs that changed units name and that aren't there, as before a first installation."""
    programs = set()
    for change in changes:
        for line in (change.after or "").splitlines():
            if line.startswith("ExecStart="):
                programs.add(line[len("ExecStart=") :].split()[0].strip('"'))
    return sorted(program for program in programs if not Path(program).exists())


def find_faults(lines: Sequence[str], names: Sequence[str]) -> list[str]:
    """Lines of `systemd-analyze verify` about our units; it also comments on those they depend on."""
    return [line for line in lines if any(name in line for name in names)]


def plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def summarize(
    names: Sequence[str],
    changes: Sequence[Change],
    removed: Sequence[str],
    kept: Sequence[str],
    *,
    check_mode: bool,
) -> str:
    """One line: how many configurations, and what happened to them."""
    paths = {change.path.name for change in changes}
    touched = [name for name in names if unit_name(name) in paths or f"{name}.json" in paths]
    would = "would be " if check_mode else ""
    parts = []
    if touched:
        parts.append(f"{len(touched)} {would}written ({', '.join(touched)})")
    if len(touched) < len(names):
        parts.append(f"{len(names) - len(touched)} unchanged")
    if removed:
        parts.append(f"{len(removed)} {would}removed ({', '.join(removed)})")
    if kept:
        parts.append(f"{len(kept)} not compared, what they need is not there yet ({', '.join(kept)})")
    others = len(
        [
            change
            for change in changes
            if not any(change.path.name in (unit_name(n), f"{n}.json") for n in names)
        ]
    )
    if others and not removed:
        parts.append(f"control {would}written")
    return f"{plural(len(names) + len(kept), 'configuration')}: {'; '.join(parts) or 'none wanted'}"


def tell(node: str, changes: Sequence[Change], refused: Sequence[str], state: State) -> list[str]:
    """What an operator must know of units that run: they are never restarted or removed by a deployment."""
    notes = [
        f"{node}: {change.path.name} is running with its old unit file; its next start uses the new one"
        for change in changes
        if change.after is not None and change.before is not None and state.runs(change.path.name)
        if change.path.name.startswith("inference-") and change.path.name.endswith(".service")
    ]
    notes += [
        f"{node}: configuration {name} is no longer wanted, but its unit is running, so it stays:"
        f" stop it (systemctl stop {unit_name(name)}) and deploy again"
        for name in refused
    ]
    return notes


def as_result(state: State, socket: str, changes: Sequence[Change]) -> dict[str, Any]:
    return {
        "socket_ready": state.active.get(socket) == "active" and state.enabled.get(socket) == "enabled",
        "socket_changed": any(change.path.name == socket for change in changes),
        "running": sorted(unit for unit in state.active if unit != socket and state.runs(unit)),
    }
