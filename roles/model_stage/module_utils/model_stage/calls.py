"""One call of the module: compare everything, make room, start what is missing; or follow it."""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import command, others, program, runner, state
from .arrangement import DEFERRED, IN_PLACE, MEMORY, Arranger, deferred_record, switch_plan, wishes
from .stager import CheckError, Queue, check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible.module_utils.basic import AnsibleModule

NO_SOURCE = "no_source"  # the stager's word for it


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
        self._client = os.access(self._wanted["python"] or sys.executable, os.X_OK)
        self._python = self._wanted["python"] if self._wanted["python"] and self._client else sys.executable
        self._needs: list[dict[str, Any]] = []
        self._will: list[dict[str, Any]] = []

    def first_call(self) -> None:
        """Compare and, outside check mode, make room and start."""
        with tempfile.TemporaryDirectory(prefix="model-stage-", dir=self._module.tmpdir) as scratch:
            try:
                self._compare(Path(scratch))
            except CheckError as exc:
                self._module.fail_json(msg=str(exc), finished=True)

    def _compare(self, scratch: Path) -> None:
        check_mode, earlier = self._module.check_mode, self._wanted["done"]
        folder = self._program(scratch)
        answers = self._check_all(scratch, folder)
        arranger = Arranger(self._module.run_command, self._python, str(folder), self._wanted)
        found = arranger.arrange(answers, earlier, scratch, apply=False)
        now = [answer for answer in answers if answer["model"] not in found.deferred]
        waits = [deferred_record(a, found.deferred[a["model"]]) for a in answers if a not in now]
        done = [*earlier, *(state.record(each) for each in now if each["action"] == "none"), *waits]
        todo = [answer for answer in now if answer["action"] != "none"]
        self._will = [self._offer(answer) for answer in todo if answer["place"] == MEMORY]
        for root in {answer["root"] for answer in (*todo, {"root": self._root})}:
            runner.require_writable(root, self._wanted["user"])
        if self._needs and not check_mode:
            self._exit(Queue(self._launcher, self._root, []), done, changed=False)
        changed = self._prepare_node(todo) or found.needs_room or any(each["changes"] for each in todo)
        if check_mode:
            records = [*earlier, *map(state.record, now), *waits]
            notes = list(found.sentences)
            changed |= bool(self._needs)
            self._exit(Queue(self._launcher, self._root, []), records, changed=changed, notes=notes)
        if found.needs_room:
            found = arranger.arrange(answers, earlier, scratch, apply=True)
        for record in done:
            state.renew(self._proof(record))
        pending = [self._pending(answer) for answer in todo]
        if pending:
            pending[0]["known"]["notes"] = list(found.sentences)
        self._follow(pending, done, changed=changed)

    def _proof(self, record: dict[str, Any]) -> Path:
        """Its stamp says when the model was last asked for."""
        beside = Path(self._wanted["state_dir"]) if record.get("place") == IN_PLACE else None
        folder = beside or Path(record["path"]).parent
        return folder / f"{record['model']}.proof.json"

    def later_call(self) -> None:
        self._follow(self._wanted["pending"], self._wanted["done"], changed=False)

    def _program(self, scratch: Path) -> Path:
        """The installed stager, or for the time of this call the one that came with it."""
        digest = self._wanted["program"]["digest"]
        if program.is_installed(self._base, digest):
            return program.version_folder(self._base, digest)
        program.unpack(self._wanted["program"]["zip"], scratch)
        return scratch

    def _check_all(self, scratch: Path, folder: Path) -> list[dict[str, Any]]:
        """Ask about every model before anything is written, and fail with all the reasons at once."""
        answers, reasons = [], []
        settled = {*self._wanted["leave"], *(record["model"] for record in self._wanted["done"])}
        for name in [name for name in self._models if name not in settled]:
            ask = functools.partial(self._ask, str(folder), self._write_manifest(name, scratch))
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
        if reasons:
            self._module.fail_json(msg="\n".join(reasons), finished=True)
        return answers

    def _ask(self, folder: str, manifest: str | None, model: others.Model) -> dict[str, Any]:
        arguments = self._arguments(model, manifest, self._wanted["token_file"])
        arguments.append("--room-later")  # room is a question of all models together
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
        return found + command.token(model, token_file) + wishes(model, self._wanted)

    def _prepare_node(self, todo: list[dict[str, Any]]) -> bool:
        """The stager, its user and its folder; whether anything was, or would be, made."""
        check_mode, user = self._module.check_mode, self._wanted["user"]
        made = runner.ensure_user(user, self._module.run_command, check_mode=check_mode)
        if any(answer["place"] == IN_PLACE for answer in todo):
            made |= runner.ensure_folder(Path(self._wanted["state_dir"]), user, check_mode=check_mode)
        digest = self._wanted["program"]["digest"]
        if program.is_installed(self._base, digest):
            return made
        if not check_mode:
            program.install(self._base, digest, self._wanted["program"]["zip"])
        return True

    def _pending(self, answer: dict[str, Any]) -> dict[str, Any]:
        """A stager that is at work already (a connection was lost) is followed, not started again."""
        progress = state.progress(answer["root"], answer["model"]) if answer["busy"] else {}
        running = str(progress.get("run", ""))
        run = running or f"{time.time_ns()}-{os.getpid()}"
        item = {"name": answer["model"], "run": run, "attached": bool(running), "changes": answer["changes"]}
        known = {key: answer[key] for key in ("place", "memory_bytes")}
        return {**item, "root": answer["root"], "known": known, "since": self._since}

    def _start(self, item: dict[str, Any]) -> None:
        name, root = item["name"], item["root"]
        runner.hand_over(root, name, self._wanted["user"])
        folder = state.state_folder(root, name)
        manifest = self._write_manifest(name, folder)
        model = others.own(self._models[name], client=self._client)
        token_file = self._wanted["token_file"] if command.asks_hub(model) else ""
        read_at = self._launcher.token_path(name, token_file)
        arguments = [*self._arguments(model, manifest, read_at), "--run", item["run"]]
        state.write_new(folder, "launched.json", json.dumps({"run": item["run"]}))
        argv = command.stager(self._python, "stage", arguments)
        home = str(program.version_folder(self._base, self._wanted["program"]["digest"]))
        network = command.needs_network(model)
        beside = (self._wanted["state_dir"],) if item["known"]["place"] == IN_PLACE else ()
        setting = command.Setting(home, root, self._wanted["user"], network, token_file, beside)
        self._launcher.start(name, argv, setting)

    def _follow(self, pending: list[dict[str, Any]], done: list[dict[str, Any]], *, changed: bool) -> None:
        unforeseen = {item["name"] for item in pending if not item["changes"]}
        queue = Queue(self._launcher, self._root, pending)
        queue.advance(self._start, self._wanted["wait_s"])
        while queue.code == NO_SOURCE and self._others_have_a_chance(queue.pending[0]):
            reason = queue.failed
            self._needs.append(others.need(self._models[queue.give_up_first()["name"]], reason))
            queue.advance(self._start, self._wanted["wait_s"])
        changed |= any(result["changed"] for result in queue.finished if result["model"] in unforeseen)
        done = [*done, *(state.record(result) for result in queue.finished)]
        if queue.failed:
            self._module.fail_json(
                msg=queue.failed,
                finished=True,
                models=done,
                holds=self._holds(done),
                waited_s=self._waited(done),
                changed=changed,
            )
        self._exit(queue, done, changed=changed)

    def _others_have_a_chance(self, item: dict[str, Any]) -> bool:
        """What seemed whole on this node's disks was not: the rest of the ladder was not tried yet."""
        return others.needs_others(self._models[item["name"]], client=self._client)

    def _exit(
        self, queue: Queue, done: list[dict[str, Any]], *, changed: bool, notes: Sequence[str] = ()
    ) -> None:
        order = list(self._models)
        done = sorted(done, key=lambda record: order.index(record["model"]))
        answer: dict[str, Any] = {"changed": changed, "since": self._since, "needs": self._needs}
        # Later calls are an until loop's, which the others' turn comes after.
        settled = self._module.check_mode or bool(self._wanted["pending"]) or not self._needs
        answer["finished"] = not queue.pending and settled
        answer.update(pending=queue.pending, models=done, will=self._will)
        answer["holds"] = self._holds(done) if not self._module.check_mode else []
        paths = {record["model"]: record["path"] for record in done}
        answer["paths"] = {name: paths.get(name, str(Path(self._root, name))) for name in self._models}
        answer["digests"] = {record["model"]: record["digest"] for record in done}
        answer["bytes"] = {each["model"]: each["total_bytes"] for each in done if each["place"] == MEMORY}
        answer["deferred"] = {each["model"]: each["names"] for each in done if each["place"] == DEFERRED}
        answer["plan"] = switch_plan(self._wanted, self._python) if answer["deferred"] else None
        left = (Path(self._wanted["plan_dir"]) / "plan.json").is_file()
        answer["switch"] = {"left": left, "systemd": isinstance(self._launcher, runner.Systemd)}
        if queue.pending:
            answer["progress"] = queue.progress()
        elif self._needs and not self._module.check_mode:
            answer["progress"] = "; ".join(map(others.asking, self._needs))
        elif not self._wanted["leave"]:  # else the last call says it all
            sentences = [*notes, *(note for record in done for note in record.get("notes", []))]
            sentences += [record["summary"] for record in done] + [others.would_ask(n) for n in self._needs]
            answer["summary"] = "; ".join(sentences)
            answer["waited_s"] = self._waited(done)
            if not self._module.check_mode:
                answer["recovery"] = {"staged": list(map(state.record, done))}
        self._module.exit_json(**answer)

    def _holds(self, done: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What lies under its name in the root, where the servers of other nodes' copies look."""
        return [self._offer(record) for record in done if record["place"] == MEMORY]

    def _offer(self, record: dict[str, Any]) -> dict[str, Any]:
        """What other nodes could have from here."""
        identity = others.identity(self._models[record["model"]])
        return {"name": record["model"], "digest": record["digest"], "identity": identity}

    def _waited(self, done: list[dict[str, Any]]) -> dict[str, float]:
        """What the copies took of this run's time: less than all of it, when they had begun before."""
        copied = sum(record.get("seconds", 0.0) for record in done)
        return {"copy": round(min(copied, time.monotonic() - self._since), 3)}
