#!/usr/bin/python
"""Bring models into memory with the stager, and follow it; the work itself is the stager's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_stage
short_description: Stage models into memory, verified, by a unit that outlives the connection
description:
  - Without O(pending), compares every model with what is published (milliseconds when all is right),
    refuses what can't work before anything is written, then starts the stager for the first model.
  - With O(pending) from the first call, follows the work, in an C(until) loop; each call waits a moment
    for news.
options:
  models:
    description: The models in the order in which they are needed.
    type: list
    elements: dict
    required: true
  root:
    description: The folder to publish in.
    type: path
    default: /dev/shm
  program:
    description: The stager, as the lookup C(model_stage_program) packs it. Hidden to keep logs short.
    type: dict
    required: true
  program_dir:
    description: Where the stager is kept on the node.
    type: path
    required: true
  manifests:
    description: Contents of manifests that the controller keeps, by model.
    type: dict
    default: {}
  reserve_bytes:
    description: Memory to be left for the engine.
    type: int
    default: 0
  user:
    description: System user that stages; empty for the connection's user.
    type: str
    default: ''
  launcher:
    description: How the stager is started.
    type: str
    choices: [auto, systemd, process]
    default: auto
  deep:
    description: Hash everything, whatever the quick proof says.
    type: bool
    default: false
  python:
    description:
      - Interpreter of the venv with the hub's client, used where it is there.
    type: path
    default: ''
  token_file:
    description: File on the node with the token for the hub; only its owner, root, may read it.
    type: path
    default: ''
  hold:
    description:
      - Start nothing where a model can only be had from other nodes, or from the hub while its client is not
        there; say in RV(needs) what they are asked for.
    type: bool
    default: false
  leave:
    description: Models that are not this call's business, as their time is still to come.
    type: list
    elements: str
    default: []
  since:
    description: When the first call began, by the node's clock since its boot, as that call said.
    type: float
    default: 0
  pending:
    description: What an earlier call has left to follow.
    type: list
    elements: dict
  done:
    description: What earlier calls have found finished.
    type: list
    elements: dict
    default: []
  wait_s:
    description: How long one call waits for news.
    type: float
    default: 1.0
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author: recover-and-bench
"""
EXAMPLES = r"""
- name: Stage the models
  model_stage:
    program: "{{ lookup('model_stage_program', role_path ~ '/files/model_stager') }}"
    program_dir: /opt/recover-and-bench/model-stager
    models:
      - name: tiny
        repo: lab/tiny
        sources: [{kind: hf_cache, path: /root/.cache/huggingface/hub}]
  register: started
"""
RETURN = r"""
finished:
  description: Whether every model is published and proven.
  returned: always
  type: bool
needs:
  description: With O(hold), the models that others must give, and what is known of them.
  returned: always
  type: list
holds:
  description: The models that are published and proven, with their digest and what was asked for.
  returned: always
  type: list
will:
  description: The models that this node can take from its own sources, in the same form.
  returned: always
  type: list
since:
  description: For the option of that name.
  returned: always
  type: float
pending:
  description: What is left to follow.
  returned: always
  type: list
bytes:
  description: The size of each finished model, by its name.
  returned: always
  type: dict
models:
  description: A record of each finished model.
  returned: always
  type: list
progress:
  description: How far the work is.
  returned: while it runs
  type: str
summary:
  description: What was found and done.
  returned: when finished
  type: str
"""

import functools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.model_stage import command, others, program, runner, state
from ansible.module_utils.model_stage.stager import CheckError, Queue, check


class Staging:
    """One call of the module."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module = module
        self._wanted: dict[str, Any] = module.params
        self._root: str = self._wanted["root"]
        self._base = Path(self._wanted["program_dir"])
        self._models = {model["name"]: model for model in self._wanted["models"]}
        self._launcher = runner.choose(self._wanted["launcher"], module.run_command)
        # The clock runs on between calls, as it is the node's own since its boot.
        begun = (item["since"] for item in self._wanted["pending"] or [])
        self._since = self._wanted["since"] or min(begun, default=time.monotonic())
        self._client = bool(self._wanted["python"]) and os.access(self._wanted["python"], os.X_OK)
        self._python = self._wanted["python"] if self._client else sys.executable
        self._needs: list[dict[str, Any]] = []
        self._will: list[dict[str, Any]] = []

    def first_call(self) -> None:
        """Compare and, outside check mode, start."""
        answers = self._check_all()
        done = [*self._wanted["done"], *(state.record(each) for each in answers if each["action"] == "none")]
        todo = [answer for answer in answers if answer["action"] != "none"]
        self._will = [self._offer(answer) for answer in todo]
        runner.require_writable(self._root, self._wanted["user"])
        if self._needs and not self._module.check_mode:
            self._exit(Queue(self._launcher, self._root, []), done, changed=False)
        node_changed = self._prepare_node()
        changed = node_changed or any(answer["changes"] for answer in todo)
        if self._module.check_mode:
            records = [state.record(answer) for answer in answers]
            changed |= bool(self._needs)
            self._exit(Queue(self._launcher, self._root, []), records, changed=changed)
        self._follow([self._pending(answer) for answer in todo], done, changed=changed)

    def later_call(self) -> None:
        self._follow(self._wanted["pending"], self._wanted["done"], changed=False)

    def _check_all(self) -> list[dict[str, Any]]:
        """Ask about every model before anything is written, and fail with all the reasons at once."""
        answers, reasons, taken = [], [], 0
        digest = self._wanted["program"]["digest"]
        with tempfile.TemporaryDirectory(prefix="model-stage-", dir=self._module.tmpdir) as scratch:
            folder = program.version_folder(self._base, digest)
            if not program.is_installed(self._base, digest):
                folder = Path(scratch)
                program.unpack(self._wanted["program"]["zip"], folder)
            settled = {*self._wanted["leave"], *(record["model"] for record in self._wanted["done"])}
            for name in [name for name in self._models if name not in settled]:
                manifest = self._write_manifest(name, Path(scratch))
                ask = functools.partial(self._ask, str(folder), manifest, taken)
                model, hold = self._models[name], self._wanted["hold"]
                try:
                    answer = others.look(model, ask, client=self._client, hold=hold)
                except CheckError as exc:
                    reasons.append(str(exc))
                    continue
                if "needs" in answer:
                    self._needs.append(answer["needs"])
                else:
                    answers.append(answer)
                    taken += answer["copy_bytes"]
        if reasons:
            self._module.fail_json(msg="\n".join(reasons), finished=True)
        return answers

    def _ask(self, folder: str, manifest: str | None, taken: int, model: others.Model) -> dict[str, Any]:
        arguments = self._arguments(model, manifest, self._wanted["token_file"])
        arguments += ["--before-bytes", str(taken)]
        return check(self._module.run_command, self._python, folder, arguments)

    def _write_manifest(self, name: str, folder: Path) -> str | None:
        content = self._wanted["manifests"].get(name)
        if content is None:
            return None
        text = content if isinstance(content, str) else json.dumps(content)
        return str(state.write_new(folder, f"{name}.wanted.json", text))

    def _arguments(self, model: others.Model, manifest: str | None, token_file: str) -> list[str]:
        reserve_bytes, deep = self._wanted["reserve_bytes"], self._wanted["deep"]
        found = command.wanted(model, self._root, manifest=manifest, reserve_bytes=reserve_bytes, deep=deep)
        return found + command.token(model, token_file)

    def _prepare_node(self) -> bool:
        """The stager and its user; whether anything was, or would be, made."""
        made = runner.ensure_user(
            self._wanted["user"], self._module.run_command, check_mode=self._module.check_mode
        )
        digest = self._wanted["program"]["digest"]
        if program.is_installed(self._base, digest):
            return made
        if not self._module.check_mode:
            program.install(self._base, digest, self._wanted["program"]["zip"])
        return True

    def _pending(self, answer: dict[str, Any]) -> dict[str, Any]:
        """A stager that is at work already (a connection was lost) is followed, not started again."""
        running = str(state.progress(self._root, answer["model"]).get("run", "")) if answer["busy"] else ""
        run = running or f"{time.time_ns()}-{os.getpid()}"
        item = {"name": answer["model"], "run": run, "attached": bool(running), "changes": answer["changes"]}
        return {**item, "since": self._since}

    def _start(self, item: dict[str, Any]) -> None:
        name = item["name"]
        runner.hand_over(self._root, name, self._wanted["user"])
        folder = state.state_folder(self._root, name)
        manifest = self._write_manifest(name, folder)
        model = self._models[name]
        token_file = self._wanted["token_file"] if command.asks_hub(model) else ""
        read_at = self._launcher.token_path(name, token_file)
        arguments = [*self._arguments(model, manifest, read_at), "--run", item["run"]]
        state.write_new(folder, "launched.json", json.dumps({"run": item["run"]}))
        argv = command.stager(self._python, "stage", arguments)
        home = str(program.version_folder(self._base, self._wanted["program"]["digest"]))
        network = command.needs_network(model)
        setting = command.Setting(home, self._root, self._wanted["user"], network, token_file)
        self._launcher.start(name, argv, setting)

    def _follow(self, pending: list[dict[str, Any]], done: list[dict[str, Any]], *, changed: bool) -> None:
        unforeseen = {item["name"] for item in pending if not item["changes"]}
        queue = Queue(self._launcher, self._root, pending)
        queue.advance(self._start, self._wanted["wait_s"])
        changed |= any(result["changed"] for result in queue.finished if result["model"] in unforeseen)
        done = [*done, *(state.record(result) for result in queue.finished)]
        if queue.failed:
            self._module.fail_json(
                msg=queue.failed,
                finished=True,
                models=done,
                holds=[self._offer(record) for record in done],
                waited_s=self._waited(done),
                changed=changed,
            )
        self._exit(queue, done, changed=changed)

    def _exit(self, queue: Queue, done: list[dict[str, Any]], *, changed: bool) -> None:
        order = list(self._models)
        done = sorted(done, key=lambda record: order.index(record["model"]))
        answer: dict[str, Any] = {"changed": changed, "since": self._since, "needs": self._needs}
        answer["finished"] = not queue.pending and (self._module.check_mode or not self._needs)
        answer.update(pending=queue.pending, models=done, will=self._will)
        answer["holds"] = [self._offer(record) for record in done] if not self._module.check_mode else []
        answer["paths"] = {name: str(Path(self._root, name)) for name in self._models}
        answer["digests"] = {record["model"]: record["digest"] for record in done}
        answer["bytes"] = {record["model"]: record["total_bytes"] for record in done}
        if queue.pending:
            answer["progress"] = queue.progress()
        elif not answer["finished"]:
            answer["progress"] = "; ".join(map(others.asking, self._needs))
        elif not self._wanted["leave"]:  # else the last call says it all
            sentences = [record["summary"] for record in done] + [others.would_ask(n) for n in self._needs]
            answer["summary"] = "; ".join(sentences)
            answer["waited_s"] = self._waited(done)
            if not self._module.check_mode:
                answer["recovery"] = {"staged": done}
        self._module.exit_json(**answer)

    def _offer(self, record: dict[str, Any]) -> dict[str, Any]:
        """What other nodes could have from here."""
        identity = others.identity(self._models[record["model"]])
        return {"name": record["model"], "digest": record["digest"], "identity": identity}

    def _waited(self, done: list[dict[str, Any]]) -> dict[str, float]:
        """What the copies took of this run's time: less than all of it, when they had begun before."""
        copied = sum(record.get("seconds", 0.0) for record in done)
        return {"copy": round(min(copied, time.monotonic() - self._since), 3)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {"type": "list", "elements": "dict", "required": True},
            "root": {"type": "path", "default": "/dev/shm"},  # noqa: S108 - the purpose
            "program": {"type": "dict", "required": True, "no_log": True},
            "program_dir": {"type": "path", "required": True},
            "manifests": {"type": "dict", "default": {}},
            "reserve_bytes": {"type": "int", "default": 0},
            "user": {"type": "str", "default": ""},
            "launcher": {"type": "str", "choices": ["auto", "systemd", "process"], "default": "auto"},
            "deep": {"type": "bool", "default": False},
            "python": {"type": "path", "default": ""},
            "token_file": {"type": "path", "default": "", "no_log": False},  # a path, not the secret
            "hold": {"type": "bool", "default": False},
            "leave": {"type": "list", "elements": "str", "default": []},
            "since": {"type": "float", "default": 0.0},
            "pending": {"type": "list", "elements": "dict"},
            "done": {"type": "list", "elements": "dict", "default": []},
            "wait_s": {"type": "float", "default": 1.0},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    staging = Staging(module)
    try:
        if module.params["pending"]:
            staging.later_call()
        else:
            staging.first_call()
    except runner.StartError as exc:
        module.fail_json(msg=str(exc), finished=True)
    except OSError as exc:
        module.fail_json(msg=f"{exc.strerror or exc} ({exc.filename})", finished=True)


if __name__ == "__main__":
    main()
