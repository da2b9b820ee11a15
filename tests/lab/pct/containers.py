"""What pct does to containers: start, stop, shut down, run a command, change the file."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .conf import Config, Section, known_key, parse, write
from .errors import PctError
from .locks import check_lock, config_lock
from .render import Device, devices, render

VAR = Path("/var/lib/lxc")
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Place:
    """Where the host keeps its container files; a folder of /etc/pve."""

    node: str
    folder: Path

    def path(self, vmid: int) -> Path:
        return self.folder / f"{vmid}.conf"

    def vmids(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.conf") if path.stem.isdigit())


def default_place() -> Place:
    node = os.uname().nodename
    return Place(node, Path("/etc/pve/nodes") / node / "lxc")


def load(place: Place, vmid: int) -> Config:
    try:
        text = place.path(vmid).read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        raise PctError(f"Configuration file 'nodes/{place.node}/lxc/{vmid}.conf' does not exist", 2) from None
    return parse(text, vmid)


def save(place: Place, vmid: int, config: Config) -> None:
    """Write beside the file and rename, the one way that pmxcfs keeps whole for readers."""
    partial = place.path(vmid).with_name(f"{vmid}.conf.tmp.{os.getpid()}")
    partial.write_text(write(config))
    partial.rename(place.path(vmid))


def state(vmid: int) -> str:
    shown = subprocess.run(
        ["lxc-info", "-n", str(vmid), "-sH"], capture_output=True, text=True, check=False
    ).stdout.strip()
    # While it starts or stops, LXC has states of its own; Proxmox knows only these two.
    return "running" if shown in {"RUNNING", "STARTING", "STOPPING", "FREEZING", "FROZEN"} else "stopped"


def init_pid(vmid: int) -> int:
    shown = subprocess.run(
        ["lxc-info", "-n", str(vmid), "-pH"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return int(shown) if shown.isdigit() else 0


def start(place: Place, vmid: int, *, skip_lock: bool = False) -> None:
    with config_lock(vmid):
        config = load(place, vmid)
        if not skip_lock:
            check_lock(config.main)
        if config.main.keys.get("template") == "1":
            raise PctError("you can't start a CT if it's a template")
        if state(vmid) == "running":
            raise PctError(f"CT {vmid} already running")
        apply_pending(place, vmid, config)
        folder = VAR / str(vmid)
        folder.mkdir(parents=True, exist_ok=True)
        controllers = set((CGROUP / "cgroup.controllers").read_text().split())
        (folder / "config").write_text(render(vmid, config.main, controllers))
        (folder / "devices").write_text("".join(device.line() for device in devices(config.main)))
        unit = f"pve-container@{vmid}"
        subprocess.run(["systemctl", "reset-failed", unit], capture_output=True, check=False)
        started = (
            subprocess.run(["systemctl", "start", unit], capture_output=True, check=False).returncode == 0
        )
        if not started or not _wait_for_start(vmid):
            raise PctError(f"startup for container '{vmid}' failed")


def _wait_for_start(vmid: int) -> bool:
    """Until LXC says RUNNING, or its unit is gone."""
    for _ in range(600):
        shown = subprocess.run(
            ["lxc-info", "-n", str(vmid), "-sH"], capture_output=True, text=True, check=False
        )
        if shown.stdout.strip() == "RUNNING":
            return True
        active = subprocess.run(["systemctl", "is-active", "--quiet", f"pve-container@{vmid}"], check=False)
        if active.returncode:
            return False
        time.sleep(0.05)
    return False


def apply_pending(place: Place, vmid: int, config: Config) -> None:
    if not config.pending.keys and not config.pending.lxc:
        return
    for key, value in config.pending.keys.items():
        if key == "delete":
            for name in value.replace(",", " ").split():
                config.main.keys.pop(name.lstrip("!"), None)
        else:
            config.main.keys[key] = value
    config.pending.keys.clear()
    config.pending.lxc.clear()
    save(place, vmid, config)


def stop(place: Place, vmid: int, *, skip_lock: bool = False) -> None:
    """Kill the container."""
    with config_lock(vmid):
        _check_stoppable(place, vmid, skip_lock=skip_lock)
        subprocess.run(["lxc-stop", "-n", str(vmid), "--kill"], check=False)
        _wait_for_stop(vmid, 10)


def shutdown(place: Place, vmid: int, *, timeout_s: int = 60, force_stop: bool = False) -> None:
    """Ask the container's init to power off."""
    with config_lock(vmid):
        _check_stoppable(place, vmid)
        command = ["lxc-stop", "-n", str(vmid), "--nokill", "--timeout", str(timeout_s)]
        subprocess.run(command, capture_output=True, check=False)
        if not _wait_for_stop(vmid, 1):
            if not force_stop:
                raise PctError("container did not stop")
            subprocess.run(["lxc-stop", "-n", str(vmid), "--kill"], check=False)
            _wait_for_stop(vmid, 10)


def reboot(place: Place, vmid: int, *, timeout_s: int = 60) -> None:
    """Shut down and start: the config is rendered anew."""
    shutdown(place, vmid, timeout_s=timeout_s, force_stop=True)
    start(place, vmid)


def _check_stoppable(place: Place, vmid: int, *, skip_lock: bool = False) -> None:
    config = load(place, vmid)
    if not skip_lock:
        check_lock(config.main)
    if state(vmid) != "running":
        raise PctError(f"CT {vmid} not running")


def _wait_for_stop(vmid: int, seconds: float) -> bool:
    """Until LXC and the unit are both done with it, so that a start right after does not meet the old one."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        unit = subprocess.run(
            ["systemctl", "is-active", f"pve-container@{vmid}"], capture_output=True, check=False
        )
        if state(vmid) == "stopped" and unit.stdout.strip() in {b"inactive", b"failed"}:
            return True
        time.sleep(0.05)
    return False


def run(place: Place, vmid: int, command: list[str]) -> NoReturn:
    """Replace this process by the command in the container."""
    load(place, vmid)
    if state(vmid) != "running":
        raise PctError(f"container '{vmid}' not running!")
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    attach = ["lxc-attach", "-n", str(vmid), "--clear-env", "-v", f"PATH={path}", "-v", "HOME=/root", "--"]
    os.execvp("lxc-attach", [*attach, *command])  # noqa: S606 (its stdin, stdout and exit status are to be the command's)


def set_options(place: Place, vmid: int, changes: dict[str, str], deletions: list[str]) -> list[str]:
    """Change keys and rewrite the whole file; returns the warnings about lines that this rewrite dropped."""
    with config_lock(vmid):
        config = load(place, vmid)
        check_lock(config.main)
        for name in deletions:
            config.main.keys.pop(name, None)
            if name == "description":
                config.main.description = ""
        running = state(vmid) == "running"
        for name, value in changes.items():
            if name == "description":
                config.main.description = value
            elif running and name in {"memory", "swap", "hostname", "rootfs", "features", "arch", "ostype"}:
                config.pending.keys[name] = value  # acts at the next start
            else:
                config.main.keys[name] = value
                if running and name.startswith("dev"):
                    _hot_plug(vmid, config.main, name)
        save(place, vmid, config)
        return config.warnings


def _hot_plug(vmid: int, section: Section, name: str) -> None:
    """Give a running container the device of one `devN` key: a rule in its cgroup, then the node."""
    device: Device = devices(Section(keys={name: section.keys[name]}))[0]
    rule = ["lxc-cgroup", "-n", str(vmid), "devices.allow", device.rule()]
    if subprocess.run(rule, capture_output=True, check=False).returncode:
        raise PctError(f"unable to hotplug {name}: {' '.join(rule)} failed")
    script = 'mkdir -p "$(dirname "$1")"; rm -f "$1"; mknod "$1" c "$3" "$4"; chmod "$2" "$1"'
    inside = ["nsenter", "-t", str(init_pid(vmid)), "-m", "sh", "-ec", script, "sh"]
    numbers = [str(device.major), str(device.minor)]
    result = subprocess.run(
        [*inside, device.path, device.mode, *numbers], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise PctError(f"unable to hotplug {name}: {result.stderr.strip()}")


def unlock(place: Place, vmid: int) -> None:
    with config_lock(vmid):
        config = load(place, vmid)
        config.main.keys.pop("lock", None)
        save(place, vmid, config)


def settable(name: str) -> bool:
    """Whether `pct set` has the option; raw `lxc.*` entries have none."""
    return name in {"delete", "digest", "description"} or (name != "snapstate" and known_key(name))
