"""The machine as the control program sees it: units and their processes, and what is deployed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$")
COMMAND_S = 30.0

NUMBERS = ("ExecMainCode", "ExecMainStatus", "MainPID", "NRestarts", "ExecMainStartTimestampMonotonic")
TEXTS = ("ActiveState", "SubState", "Result", "InvocationID", "ControlGroup")
QUIET = ("inactive", "failed")
# Where the role model_stage says what has to take turns, and where the switch says how far it is.
SWITCH_PLAN = Path("/etc/model-stage/plan.json")
SWITCH_STATE = Path("/run/model-stage/switch.json")


class RequestError(Exception):
    """A request that is refused or that failed; the text goes to the client."""


class System:
    """The machine: replaced by a folder and a program in the tests."""

    def __init__(
        self,
        descriptions: Path,
        cgroups: Path = Path("/sys/fs/cgroup"),
        bin_dir: str = "",
        *,
        switch_plan: Path = SWITCH_PLAN,
        switch_state: Path = SWITCH_STATE,
    ) -> None:
        self.descriptions = descriptions
        self.cgroups = cgroups
        self.bin_dir = bin_dir
        self.switch_plan = switch_plan
        self.switch_state = switch_state

    def run(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> subprocess.CompletedProcess[bytes]:
        program = self.bin_dir + argv[0]
        try:
            return subprocess.run(
                [program, *argv[1:]], stdin=DEVNULL, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as exc:
            raise RequestError(f"{' '.join(argv)} did not end within {timeout_s:.0f} s") from exc
        except OSError as exc:
            raise RequestError(f"{program} cannot be run: {exc.strerror}") from exc

    def description(self, name: str) -> Mapping[str, Any]:
        path = self.descriptions / f"{name}.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            if raw["unit"] != f"inference-{name}.service":
                raise RequestError(f"{path} names the unit {raw['unit']}, not inference-{name}.service")
        except FileNotFoundError as exc:
            known = ", ".join(self.names()) or "none"
            raise RequestError(f"no configuration {name} is deployed here; known: {known}") from exc
        except (OSError, ValueError, TypeError, KeyError) as exc:
            raise RequestError(f"{path} cannot be read: {exc}; deploy again") from exc
        return dict(raw)

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.descriptions.glob("*.json") if NAME.fullmatch(path.stem))

    def properties(self, unit: str, names: Sequence[str]) -> dict[str, str]:
        done = self.run(["systemctl", "show", f"--property={','.join(names)}", "--", unit])
        if done.returncode != 0:
            raise RequestError(f"systemctl show {unit}: {text(done.stderr).strip()}")
        pairs = (line.partition("=") for line in text(done.stdout).splitlines())
        return {key: value for key, _, value in pairs}

    def processes(self, control_group: str) -> list[int]:
        """Every process of a control group and those below it; a group that is gone has none."""
        if not control_group:
            return []
        roots = [self.cgroups, self.cgroups / "unified", self.cgroups / "systemd"]
        root = next((each for each in roots if (each / "cgroup.procs").exists()), self.cgroups)
        pids: list[int] = []
        for path in (root / control_group.lstrip("/")).glob("**/cgroup.procs"):
            try:
                pids += [int(line) for line in path.read_text(encoding="ascii").split()]
            except OSError:  # noqa: PERF203 - the group ended between the look and the read
                continue
        return pids


def text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def show(system: System, unit: str) -> dict[str, Any]:
    raw = system.properties(unit, (*TEXTS, *NUMBERS))
    shown: dict[str, Any] = {name: raw.get(name, "") for name in TEXTS}
    shown.update({name: int(raw[name]) if raw.get(name, "").isdigit() else 0 for name in NUMBERS})
    shown["processes"] = len(system.processes(shown["ControlGroup"]))
    return shown
