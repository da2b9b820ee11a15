#!/usr/bin/python
"""Give a campaign its plan and start it, where a cell is not done; the measuring is the runner's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bench_run_campaign
short_description: Starts a benchmark campaign as a unit that outlives the connection
description:
  - Asks the installed runner what there is to do, before anything is written. What the runner refuses, this
    refuses, in the runner's words.
  - Makes the runner's account where it is missing, writes C(plan.yml) and C(environment.json) into the
    campaign's folder, and starts C(bench-run-<campaign>.service), unless every cell is done.
  - A campaign that runs already is left alone, to be followed.
options:
  plan:
    description: The campaign; its C(name) names the folder and the unit.
    type: dict
    required: true
  environment:
    description: C(node), C(host) and C(host_facts), for the fingerprint of each cell.
    type: dict
    required: true
  root:
    description: Folder of the campaigns.
    type: path
    required: true
  owner:
    description: System user of the runner, made when it is missing.
    type: str
    required: true
  group:
    description: Group of the runner, made when it is missing.
    type: str
    required: true
  python:
    description: Python of the runner's venv.
    type: path
    required: true
  configurations_dir:
    description: Folder of the descriptions of what is deployed.
    type: path
    required: true
  control_socket:
    description: Socket that starts and stops servers.
    type: path
    required: true
  retry:
    description: Run cells again whose attempts are used up.
    type: bool
    default: false
  hardened:
    description: Whether the unit is hardened.
    type: bool
    default: true
attributes:
  check_mode: {description: Says what would be measured., support: full}
  diff_mode: {description: The plan's and the environment's file., support: full}
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Start the campaign
  bench_run_campaign:
    plan: "{{ plan }}"
    environment: {node: ct200, host: pve, host_facts: {}}
    root: /var/lib/bench
    owner: bench
    group: bench
    python: /opt/recover-and-bench/bench-runner/bin/python
    configurations_dir: /etc/inference-server/configurations
    control_socket: /run/inference-control.sock
  register: started
"""
RETURN = r"""
follow: {description: Whether a campaign runs that is to be followed., type: bool, returned: always}
attached: {description: Whether it ran before this call., type: bool, returned: always}
counts: {description: "Cells to run, keep, leave and skip.", type: dict, returned: when it was asked}
since_seq: {description: The journal's last event before this call., type: int, returned: always}
run_before: {description: The runner's last start before this call., type: str, returned: always}
"""

import grp
import json
import os
import pwd
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bench_run import campaign_files, unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


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
        return unit.is_live(str(out).strip())

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

    def start(self) -> None:
        status, out, err = self.module.run_command(unit.start_command(self.wanted))
        if status != 0:
            name = unit.unit_name(self.name)
            self.module.fail_json(msg=f"{self.where()}: {name} could not be started: {(err or out).strip()}")

    def missing_accounts(self) -> list[list[str]]:
        """Commands that make what is missing of the runner's account.

        Here and not in tasks of their own: two round trips less on each of the many runs that find it there.
        """
        owner, group = self.wanted["owner"], self.wanted["group"]
        commands = []
        if not _exists(grp.getgrnam, group):
            commands.append(["groupadd", "--system", group])
        if not _exists(pwd.getpwnam, owner):
            home = ["--no-create-home", "--home-dir", str(self.wanted["root"])]
            commands.append(
                ["useradd", "--system", "--gid", group, *home, "--shell", "/usr/sbin/nologin", owner]
            )
        return commands

    def make_accounts(self, commands: list[list[str]]) -> None:
        for command in commands:
            status, out, err = self.module.run_command(command)
            if status != 0:
                self.module.fail_json(msg=f"{self.where()}: {' '.join(command)}: {(err or out).strip()}")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "environment": {"type": "dict", "required": True},
            "root": {"type": "path", "required": True},
            "owner": {"type": "str", "required": True},
            "group": {"type": "str", "required": True},
            "python": {"type": "path", "required": True},
            "configurations_dir": {"type": "path", "required": True},
            "control_socket": {"type": "path", "required": True},
            "retry": {"type": "bool", "default": False},
            "hardened": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    campaign = Campaign(module)
    result: dict[str, Any] = {
        "campaign": campaign.name,
        "changed": False,
        "follow": False,
        "attached": False,
        "since_seq": campaign_files.last_seq(campaign.folder),
        "run_before": str(campaign_files.read_status(campaign.folder).get("run", "")),
    }
    if not Path(module.params["python"]).exists() and module.check_mode:
        unknown = "which cells are done is not known: the runner is not installed yet"
        module.exit_json(
            **{**result, "changed": True, "summary": f"would measure {campaign.name} ({unknown})"}
        )
    differing = campaign.differing()
    if campaign.is_running():
        attach(campaign, result, other_plan="plan.yml" in differing)
    answer = campaign.ask()
    counts = answer["counts"]
    to_run = counts.get("run", 0)
    needed = to_run > 0 or answer["new_skips"] > 0
    if not needed:
        # Facts of the place matter to cells that run; some (a live clock, an uptime) differ at each look.
        differing.pop("environment.json", None)
    accounts = campaign.missing_accounts()
    result.update(
        changed=bool(differing or accounts) or needed,
        follow=needed and not module.check_mode,
        counts=counts,
        diff=campaign.diff(differing),
    )
    if not module.check_mode:
        campaign.make_accounts(accounts)
        campaign.write(differing)
        if needed:
            campaign.start()
    if not result["follow"]:
        result["summary"] = summary(answer, check_mode=module.check_mode)
        result["recovery"] = {
            "bench": {"campaign": campaign.name, "kept": counts.get("keep", 0), "measured": 0}
        }
    module.exit_json(**result)


def attach(campaign: Campaign, result: dict[str, Any], *, other_plan: bool) -> None:
    """Follow what runs. Another plan is not slipped under a running campaign."""
    if other_plan and not campaign.module.check_mode:
        campaign.module.fail_json(
            msg=f"{campaign.where()} is running with another plan.yml; wait for its end, or stop it first: "
            f"systemctl stop {unit.unit_name(campaign.name)}"
        )
    line = campaign_files.progress(campaign_files.read_status(campaign.folder))
    result.update(
        follow=not campaign.module.check_mode,
        attached=True,
        run_before="",  # what the status says now is of the run to be followed
        progress=f"running already: {line}",
    )
    campaign.module.exit_json(**result)


def summary(answer: dict[str, Any], *, check_mode: bool) -> str:
    counts, total = answer["counts"], len(answer["cells"])
    to_run, kept = counts.get("run", 0), counts.get("keep", 0)
    if kept == total:
        return f"{total} cells: all kept from before, nothing to run"
    parts = [f"{kept} kept"]
    parts += [
        f"{counts[key]} {words}" for key, words in (("leave", "not ok"), ("skip", "skipped")) if key in counts
    ]
    if check_mode and to_run:
        about = f", about {answer['expected_s']:.0f} s" if answer["expected_s"] else ""
        return f"{total} cells: would measure {to_run}{about}; {', '.join(parts)}"
    return f"{total} cells: {', '.join(parts)}, nothing to run"


def _exists(look_up: Callable[[str], object], name: str) -> bool:
    try:
        look_up(name)
    except KeyError:
        return False
    return True


def _text(value: dict[str, Any]) -> str:
    """JSON, which is YAML too: the same value gives the same text on every Python."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
