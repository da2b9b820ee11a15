"""The VM: started by QEMU on the room's bridge, stopped, and waited for."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import struct
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.lab import machines, paths
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fleet import Host
    from tests.lab.vm.parts import Parts

QEMU = "qemu-system-x86_64"
TAP = "tap0"
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
MEMORY = "2G"
# Without KVM a boot takes a minute or two on a quiet machine.
BOOT_LIMIT_S = 600.0
TRIAL_S = 15.0


def accelerator(kernel: Path) -> str:
    """KVM where a kernel really gets with it to its missing root filesystem: /dev/kvm alone says little."""
    if not os.access("/dev/kvm", os.W_OK):
        return "tcg,thread=multi"
    trial = [QEMU, "-accel", "kvm", "-cpu", "max", "-m", "512M", "-display", "none", "-monitor", "none"]
    trial += ["-no-reboot", "-kernel", str(kernel), "-append", "panic=-1"]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            trial, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_S, check=False
        )
        if done.returncode == 0:
            return "kvm"
    return "tcg,thread=multi"


def power_on(host: Host, parts: Parts, disk: Path) -> None:
    folder = paths.machine_dir(host.name)
    tap = _make_tap()
    command = [
        *(QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none"),
        *("-accel", accelerator(parts.kernel), "-cpu", "max", "-smp", "2", "-m", MEMORY),
        *("-serial", f"file:{folder}/console.log"),
        *("-kernel", str(parts.kernel), "-initrd", str(parts.initial_root)),
        *("-append", "console=ttyS0 net.ifnames=0 quiet"),
        *("-drive", f"file={parts.tree_disk},if=virtio,format=raw,readonly=on"),
        *("-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"),
        *("-netdev", f"tap,id=net0,fd={tap}", "-device", f"virtio-net-pci,netdev=net0,mac={host.mac}"),
    ]
    with (folder / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(tap,),
            start_new_session=True,
        )
    os.close(tap)
    _pid_file(host).write_text(str(process.pid))


def _make_tap() -> int:
    """A port on the room's bridge, as a file descriptor for QEMU; the device node is the room's own."""
    node = paths.STATE / "tun"
    if not node.exists():
        os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(10, 200))
    tap = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", TAP.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    subprocess.run(["ip", "link", "set", TAP, "master", "br0", "up"], check=True)
    return tap


def _pid_file(host: Host) -> Path:
    return paths.machine_dir(host.name) / "qemu.pid"


def power_off(host: Host) -> None:
    """Pull the plug."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(_pid_file(host).read_text()), signal.SIGKILL)
    _pid_file(host).unlink(missing_ok=True)


def running(host: Host) -> bool:
    try:
        pid = int(_pid_file(host).read_text())
        with suppress(ChildProcessError):  # started by an earlier verb: the room's first process reaps it
            os.waitpid(pid, os.WNOHANG)
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True


def wait_until_up(host: Host, not_boot: str = "") -> None:
    """Until the host, in another boot than `not_boot`, and its nodes take commands."""
    wait_for(host, host.name, not_boot)
    # A start of what starts already waits for it.
    machines.ssh_checked(host.name, "systemctl start pve-guests.service", timeout_s=300)
    for node in host.nodes:
        wait_for(host, node.name)


def wait_for(host: Host, name: str, not_boot: str = "") -> None:
    """Until the host or one of its nodes takes a command over ssh."""
    deadline = time.monotonic() + BOOT_LIMIT_S
    while _boot_id(name) in ("", not_boot):
        _require_time(host, deadline, name)
        time.sleep(1)


def _boot_id(name: str) -> str:
    with suppress(subprocess.TimeoutExpired):
        shown = machines.ssh(name, "cat /proc/sys/kernel/random/boot_id", timeout_s=60, connect_s=20)
        return shown.stdout.strip() if shown.returncode == 0 else ""
    return ""


def _require_time(host: Host, deadline: float, name: str) -> None:
    folder = paths.machine_dir(host.name)
    if time.monotonic() > deadline or not running(host):
        said = [line for log in ("qemu.log", "console.log") for line in _last_lines(folder / log)]
        found = f"{name} is not up within {BOOT_LIMIT_S:.0f} s" if running(host) else "QEMU has ended"
        raise LabError("\n".join([f"{found}; the last it said:", *said]))


def _last_lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-8:] if path.exists() else []


def reboot(host: Host) -> None:
    before = _boot_id(host.name)
    machines.ssh(host.name, "systemctl reboot", timeout_s=60)
    wait_until_up(host, before)
