"""Faults in the node."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from tests.lab.faults.place import Place

SMALL_SHM = "1M"
CUT_BYTES = 4096


def sshd_down(place: Place) -> str:
    place.in_node("systemctl disable --now --quiet ssh.service")
    return "stopped and disabled sshd in the node"


def network_down(place: Place) -> str:
    place.in_node("ip link set eth0 down")
    return "took eth0 of the node down, until the container's next start"


def shm_too_small(place: Place) -> str:
    entry = f"tmpfs /dev/shm tmpfs rw,nosuid,nodev,size={SMALL_SHM} 0 0"
    place.on_node(f"echo {shlex.quote(entry)} >> /etc/fstab; rm -rf /dev/shm/*")
    place.on_node(f"mount -o remount,size={SMALL_SHM} /dev/shm")
    return f"emptied /dev/shm and made it {SMALL_SHM} small, by /etc/fstab also after a restart"


def staged_model_truncated(place: Place) -> str:
    listing = place.on_node("find /dev/shm -mindepth 2 -type f -size +64k -printf '%s %p\\n' | sort -rn")
    found = listing.partition("\n")[0].partition(" ")[2]
    if not found:
        raise LabError(f"{place.node.name}: no staged model under /dev/shm; stage one first")
    place.on_node(f"truncate -s -{CUT_BYTES} {shlex.quote(found)}")
    return f"cut {CUT_BYTES} bytes off {found}"


def unit_model_path(place: Place) -> str:
    # An engine whose launcher reads the description has the path there and none in its unit.
    files = place.on_node(
        "grep -l /dev/shm/ /etc/systemd/system/inference-*.service "
        "/etc/inference-server/configurations/*.json 2>/dev/null || true"
    ).split()
    if not files:
        raise LabError(
            f"{place.node.name}: no deployed engine unit names a model under /dev/shm; deploy first"
        )
    change = "s#/dev/shm/#/dev/shm/nowhere/#g"
    place.on_node(f"sed -i {shlex.quote(change)} {shlex.join(files)} && systemctl daemon-reload")
    return f"pointed the model path of {', '.join(files)} to /dev/shm/nowhere/"
