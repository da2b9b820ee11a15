"""Start, stop and hot-plug of a container through `pct`.

What it prints decides; its exit codes are errnos in disguise.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import PveLxcError

if TYPE_CHECKING:
    from pathlib import Path

    from .commands import Run

_STATUS = re.compile(r"^status:\s*(\S+)", re.MULTILINE)
_POLL_S = 0.25
_SETTLE_S = 5.0
_INIT_UP = ("running", "degraded", "maintenance")
_INIT_COMING = ("initializing", "starting")


@dataclass(frozen=True)
class Limits:
    """Seconds."""

    shutdown_s: int = 60
    start_s: int = 120


class Container:
    """One container of this host. `run` takes a command and returns its exit code and both outputs."""

    def __init__(self, vmid: int, run: Run, limits: Limits, *, ha_managed: bool = False) -> None:
        self.vmid = str(vmid)
        self.run = run
        self.limits = limits
        self.ha_managed = ha_managed

    def status(self) -> str:
        code, out, err = self.run(["pct", "status", self.vmid])
        match = _STATUS.search(out)
        if not match:
            raise PveLxcError(
                f"`pct status {self.vmid}` printed no status (it ended with {code}): {_words(err or out)}"
            )
        return match.group(1)

    def sibling(self, vmid: str) -> Container:
        """Another container of the same host."""
        return Container(int(vmid), self.run, self.limits)

    def start(self) -> None:
        self._order(["pct", "start", self.vmid], "running", self.limits.start_s)
        self.await_init()

    def stop(self) -> None:
        limit = str(self.limits.shutdown_s)
        command = ["pct", "shutdown", self.vmid, "--timeout", limit, "--forceStop", "1"]
        self._order(command, "stopped", self.limits.shutdown_s)

    def _order(self, command: list[str], status: str, limit_s: float) -> None:
        """Under HA the command only requests the change, so what counts is the status later."""
        code, out, err = self.run(command)
        # After an error a little patience too: the host's own start of its containers may have been faster.
        patience = limit_s if self.ha_managed else _SETTLE_S if code == 0 else _SETTLE_S / 5
        if not self._comes_to(status, patience):
            said = f"`{' '.join(command)}` ended with {code}: {_words(err or out) or 'it printed nothing'}"
            raise PveLxcError(f"container {self.vmid} is {self.status()}, not {status}. {said}")

    def await_running(self) -> None:
        """For a container that something else starts, such as the host's boot."""
        if not self._comes_to("running", self.limits.start_s):
            raise PveLxcError(
                f"container {self.vmid} is {self.status()}, not running, after {self.limits.start_s} s"
            )
        self.await_init()

    def _comes_to(self, status: str, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while self.status() != status:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def await_init(self) -> None:
        started = time.monotonic()
        while True:
            state = self.init_state()
            waited = time.monotonic() - started
            if state in _INIT_UP or (state == "" and self._answers()):
                return
            if state in _INIT_COMING and waited > min(_SETTLE_S, self.limits.start_s):
                return  # one slow unit is no broken container
            if waited > self.limits.start_s:
                raise PveLxcError(
                    f"container {self.vmid} runs, but its init is not up after {self.limits.start_s} s "
                    f"(`systemctl is-system-running`: {state or 'no answer'})"
                )
            time.sleep(_POLL_S)

    def init_state(self) -> str:
        """Systemd's state inside, or "" where there is no systemd to ask (yet)."""
        words = self.inside(["systemctl", "is-system-running"])[1].split()
        return words[0] if words and words[0] in (*_INIT_UP, *_INIT_COMING, "stopping") else ""

    def _answers(self) -> bool:
        """A container without systemd is up when it runs a command."""
        return self.inside(["test", "-d", "/run/systemd/system"])[0] == 1

    def inside(self, command: list[str]) -> tuple[int, str, str]:
        return self.run(["pct", "exec", self.vmid, "--", *command])

    def running_units(self, patterns: list[str]) -> list[str]:
        """The units of these names that are active inside."""
        command = ["systemctl", "list-units", "--plain", "--no-legend", "--no-pager"]
        states = ["--state=active,activating,deactivating,reloading"]
        _, out, _ = self.inside([*command, *states, *patterns])
        return [line.split()[0] for line in out.splitlines() if line.split()]

    def allow_now(self, rules: list[str]) -> None:
        """Let the running container use these devices: LXC swaps the device program of its cgroup."""
        for rule in rules:
            self._do(["lxc-cgroup", "-n", self.vmid, "devices.allow", rule])

    def plug_in(self, devices: dict[str, str]) -> None:
        for key, value in devices.items():
            self._do(["pct", "set", self.vmid, f"--{key}", value])

    def _do(self, command: list[str]) -> None:
        code, out, err = self.run(command)
        if code != 0:
            raise PveLxcError(f"`{' '.join(command)}` ended with {code}: {_words(err or out)}")


def is_ha_managed(resources: Path, vmid: int) -> bool:
    """Whether Proxmox's high availability manages this container (`ct: 200` in its resources)."""
    try:
        text = resources.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False
    return re.search(rf"^ct:\s*{vmid}\s*$", text, re.MULTILINE) is not None


def _words(text: str) -> str:
    return " ".join(text.split())
