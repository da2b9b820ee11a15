"""A campaign's folder and unit on the node, as its module sees and changes them."""

from __future__ import annotations

import grp
import json
import os
import pwd
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.bench_run import production, unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible.module_utils.basic import AnsibleModule

STOPPED_FILE = ".production.json"  # hidden: the collector leaves such files where they are


class Campaign:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.wanted: dict[str, Any] = {**module.params, "campaign": str(module.params["plan"].get("name"))}
        self.name: str = self.wanted["campaign"]
        self.folder = Path(self.wanted["root"]) / self.name
        self.files = {
            "plan.yml": _text(self.wanted["plan"]),
            "environment.json": _text(self.wanted["environment"]),
        }

    def is_running(self) -> bool:
        command = ["systemctl", "show", "--property=ActiveState", "--value", "--", unit.unit_name(self.name)]
        status, out, err = self.module.run_command(command)
        if status != 0:
            self.module.fail_json(msg=f"systemctl show {unit.unit_name(self.name)}: {(err or out).strip()}")
        live: bool = unit.is_live(str(out).strip())
        return live

    def differing(self) -> dict[str, tuple[str, str]]:
        """Files whose content isn't the wanted one: name -> before and after."""
        found = {}
        for name, after in self.files.items():
            path = self.folder / name
            before = path.read_text(encoding="utf-8") if path.is_file() else ""
            if before != after:
                found[name] = (before, after)
        return found

    def diff(self, differing: dict[str, tuple[str, str]]) -> list[dict[str, str]]:
        headers = {
            name: {"before_header": name, "after_header": str(self.folder / name)} for name in differing
        }
        return [
            {"before": before, "after": after, **headers[name]}
            for name, (before, after) in sorted(differing.items())
        ]

    def ask(self) -> dict[str, Any]:
        """What the runner would do with this plan, asked with files of its own: nothing is written yet."""
        with tempfile.TemporaryDirectory(prefix="bench-run-", dir=self.module.tmpdir) as scratch:
            for name, content in self.files.items():
                (Path(scratch) / name).write_text(content, encoding="utf-8")
            command = [
                self.wanted["python"],
                *("-I", "-B", "-m", "bench_runner", "plan", "--json"),
                # In check mode the models of a node that was rebooted are not there yet, and will be.
                *(["--not-staged"] if self.module.check_mode else []),
                f"--plan={scratch}/plan.yml",
                f"--environment={scratch}/environment.json",
                *unit.run_arguments(self.wanted),
            ]
            status, out, err = self.module.run_command(command)
        if status != 0:
            said = "; ".join((err or out).strip().splitlines()[-4:])
            self.module.fail_json(msg=f"{self.where()}: {said}")
        answer: dict[str, Any] = json.loads(out)
        return answer

    def where(self) -> str:
        return f"{self.wanted['environment'].get('node')}: campaign {self.name}"

    def write(self, names: Iterable[str]) -> None:
        """The folder belongs to the runner, so that it can write without rights."""
        owner, group = (
            pwd.getpwnam(self.wanted["owner"]).pw_uid,
            grp.getgrnam(self.wanted["group"]).gr_gid,
        )
        for folder in (Path(self.wanted["root"]), self.folder):
            if not folder.is_dir():
                folder.mkdir(parents=True, mode=0o755)
            os.chown(str(folder), owner, group)
        for name in names:
            tmp = self.folder / f".{name}.ansible"
            tmp.write_text(self.files[name], encoding="utf-8")
            os.chown(str(tmp), owner, group)
            tmp.replace(self.folder / name)

    def serving(self) -> list[str]:
        """The production units that are up and must be stopped for this campaign; refused unless allowed."""
        up: list[str] = []
        notes: list[str] = []
        try:
            up, notes = production.serving(
                self.wanted["production_units"],
                self.module.run_command,
                allowed=self.wanted["stop_production_allowed"],
            )
        except production.ProductionError as exc:
            self.module.fail_json(msg=f"{self.where()}: {exc}")
        for note in notes:
            self.module.warn(f"{self.where()}: {note}")
        return up

    def start(self, stopped: list[str]) -> None:
        (self.folder / STOPPED_FILE).write_text(json.dumps(stopped) + "\n", encoding="utf-8")
        status, out, err = self.module.run_command(unit.start_command({**self.wanted, "stopped": stopped}))
        if status != 0:
            name = unit.unit_name(self.name)
            self.module.fail_json(msg=f"{self.where()}: {name} could not be started: {(err or out).strip()}")

    def stopped_before(self) -> list[str]:
        """The units that the running campaign has stopped."""
        try:
            return list(json.loads((self.folder / STOPPED_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return []

    def make_accounts(self, commands: list[list[str]]) -> None:
        for command in commands:
            status, out, err = self.module.run_command(command)
            if status != 0:
                self.module.fail_json(msg=f"{self.where()}: {' '.join(command)}: {(err or out).strip()}")


def _text(value: dict[str, Any]) -> str:
    """JSON, which is YAML too: the same value gives the same text on every Python."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
