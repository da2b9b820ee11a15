"""Where a fault is made: a node, its host, and the hands to reach both."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.lab import drivers, machines, paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.fleet import Host, Node


@dataclass(frozen=True)
class Place:
    """The node that is to be broken, its host, and the host's settings."""

    node: Node
    host: Host
    settings: drivers.Settings

    @property
    def uvm_major(self) -> int:
        return self.settings.uvm.major

    @property
    def conf(self) -> str:
        return f"/etc/pve/lxc/{self.node.vmid}.conf"

    def on_host(self, command: str) -> str:
        return machines.ssh_checked(self.host.name, command, timeout_s=120)

    def on_node(self, command: str) -> str:
        return machines.ssh_checked(self.node.name, command)

    def in_node(self, command: str) -> str:
        """Run a command in the node through its host, for what cuts the node's own connection."""
        return self.on_host(f"pct exec {self.node.vmid} -- sh -c {shlex.quote(command)}")

    def edit(self, change: Callable[[str], str]) -> None:
        """Change the container's file as pmxcfs wants it: a temporary file beside it, then a rename."""
        text = change(self.on_host(f"cat {self.conf}"))
        machines.ssh_checked(
            self.host.name, f"cat > {self.conf}.tmp && mv {self.conf}.tmp {self.conf}", text=text
        )

    def restart(self) -> None:
        """Stop and start the container, so that its file and the host's devices count."""
        vmid = self.node.vmid
        self.on_host(f"pct stop {vmid} 2>/dev/null; pct start {vmid}")
        machines.wait_for(self.node.name)

    def change_host(self, settings: drivers.Settings) -> None:
        """Give the host other hardware, as of its next boot, and reboot it."""
        self.save(settings)
        machines.reboot(self.host)
        machines.wait_for_hosts((self.host,))

    def save(self, settings: drivers.Settings) -> None:
        drivers.save_settings(settings, paths.settings_dir(self.host.name))


def place_of(node: Node, host: Host) -> Place:
    return Place(node, host, drivers.load_settings(paths.settings_dir(host.name)))
