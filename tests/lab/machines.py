"""The hosts as containers of this machine: power on, off, and waiting until they and their nodes answer."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from tests.lab import fleet as names
from tests.lab import paths
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fleet import Host, Node


NODE_WAIT_S = 15.0


def make_bridge() -> None:
    """The room's end of the lab's network."""
    if subprocess.run(["ip", "link", "show", "br0"], capture_output=True, check=False).returncode == 0:
        return
    for command in (
        f"link add br0 address {names.ROOM_MAC} type bridge",
        f"addr add {names.ROOM_ADDRESS}/24 dev br0",
        "link set br0 up",
    ):
        subprocess.run(["ip", *command.split()], check=True)


def write_config(host: Host, tree: Path) -> None:
    folder = paths.machine_dir(host.name)
    lines = [
        f"lxc.uts.name = {host.name}",
        "lxc.arch = amd64",
        f"lxc.rootfs.path = overlay:{tree}:{folder}/delta",
        "lxc.mount.auto = proc:rw sys:rw cgroup:rw:force",
        "lxc.apparmor.profile = unconfined",
        "lxc.cap.drop =",
        "lxc.tty.max = 1",
        "lxc.pty.max = 1024",
        "lxc.net.0.type = veth",
        "lxc.net.0.link = br0",
        "lxc.net.0.flags = up",
        "lxc.net.0.name = eno1",
        f"lxc.net.0.hwaddr = {host.mac}",
        f"lxc.mount.entry = {tree} srv/base none bind,ro,create=dir 0 0",
        f"lxc.mount.entry = {folder}/disks srv/disks none bind,create=dir 0 0",
        f"lxc.mount.entry = {folder}/settings var/lib/lab none bind,create=dir 0 0",
    ]
    (folder / "config").write_text("".join(f"{line}\n" for line in lines))


def power_on(host: Host) -> None:
    # lxc-start takes a relative log path from /, so it is absolute.
    log = paths.machine_dir(host.name) / "lxc.log"
    command = ["lxc-start", "-P", str(paths.MACHINES), "-n", host.name, "-l", "INFO", "-o", str(log)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode:
        tail = "\n".join(log.read_text().splitlines()[-8:]) if log.exists() else result.stderr
        raise LabError(f"host {host.name} does not start:\n{tail}")


def power_off(host: Host) -> None:
    """Pull the plug: nothing is shut down, the disks keep what was written."""
    if state(host) != "stopped":
        subprocess.run(["lxc-stop", "-P", str(paths.MACHINES), "-n", host.name, "-k"], check=True)


def state(host: Host) -> str:
    command = ["lxc-info", "-P", str(paths.MACHINES), "-n", host.name, "-sH"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().lower()
    return shown or "stopped"


def ssh(
    name: str, command: str, *, timeout_s: float = 60, connect_s: int = 5, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command on a machine with `text` as its input; never reads ours."""
    full = ["ssh", "-F", str(paths.SSH_CONFIG), "-o", f"ConnectTimeout={connect_s}", name, "--", command]
    return subprocess.run(full, input=text, capture_output=True, text=True, check=False, timeout=timeout_s)


def ssh_checked(name: str, command: str, *, timeout_s: float = 60, text: str = "") -> str:
    result = ssh(name, command, timeout_s=timeout_s, text=text)
    if result.returncode:
        said = result.stderr.strip() or result.stdout.strip()
        raise LabError(f"{name}: `{command}` failed ({result.returncode}): {said}")
    return result.stdout


def answers(name: str) -> bool:
    try:
        return ssh(name, "true", timeout_s=10, connect_s=1).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def wait_for(name: str, seconds: float = 60) -> None:
    """Until the machine takes a command over ssh."""
    deadline = time.monotonic() + seconds
    while not answers(name):
        if time.monotonic() > deadline:
            raise LabError(
                f"{name} does not answer over ssh after {seconds:.0f} s; see `python -m tests.lab status`"
            )
        time.sleep(0.1)


def wait_for_hosts(hosts: tuple[Host, ...]) -> list[str]:
    """Until the hosts have done with their guests; the nodes that do not answer then, each with its state."""
    for host in hosts:
        wait_for(host.name)
        # A start of what starts already waits for it: the guests are up, or have failed.
        ssh_checked(host.name, "systemctl start pve-guests.service")
    return [note for host in hosts for node in host.nodes if (note := _silence(host, node))]


def _silence(host: Host, node: Node) -> str | None:
    state = ssh(host.name, f"pct status {node.vmid}").stdout.strip()
    if state != "status: running":
        return f"{node.name} is not running ({state or 'no answer from pct'})"
    try:
        wait_for(node.name, NODE_WAIT_S)
    except LabError:
        return f"{node.name} runs but does not answer over ssh"
    return None


def boot_id(name: str) -> str:
    return ssh_checked(name, "cat /proc/sys/kernel/random/boot_id").strip()


def reboot(host: Host, seconds: float = 90) -> None:
    """Reboot the host as its own init does, and wait until it is up again."""
    before = boot_id(host.name)
    ssh(host.name, "systemctl reboot")
    deadline = time.monotonic() + seconds
    while True:
        shown = ssh(host.name, "cat /proc/sys/kernel/random/boot_id", connect_s=1)
        if shown.returncode == 0 and shown.stdout.strip() != before:
            return
        if time.monotonic() > deadline:
            raise LabError(f"{host.name} is not back {seconds:.0f} s after `systemctl reboot`")
        time.sleep(0.1)
