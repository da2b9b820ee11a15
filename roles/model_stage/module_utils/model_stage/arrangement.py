"""What all models of a call need together: asked of the stager, which looks at the node."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import command, state
from .stager import ask

if TYPE_CHECKING:
    from .stager import RunCommand

SCHEMA_VERSION = 1
MEMORY, IN_PLACE, DISK, DEFERRED = "memory", "in_place", "disk", "deferred"

Answer = dict[str, Any]


@dataclass(frozen=True)
class Arrangement:
    """Which of the asked models wait, and what makes room for the others."""

    deferred: dict[str, str] = field(default_factory=dict)  # name → the announcement
    removed: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()  # what is removed and grown
    needs_room: bool = False


def wishes(model: dict[str, Any], params: dict[str, Any]) -> list[str]:
    """The stager's arguments about places."""
    found = []
    own = model.get("in_memory")
    if not (params["in_memory"] if own is None else own):
        found.append("--not-in-memory")
    if params["grow_allowed"]:
        found.append("--may-grow")
    for option in ("state_dir", "disk_root", "reader"):
        if params[option]:
            found += [f"--{option.replace('_', '-')}", params[option]]
    return found


def plan_of(params: dict[str, Any], models: dict[str, Any]) -> dict[str, Any]:
    """What `arrange` and `switch` read; `models` by name, in the plan's order."""
    return {
        "schema_version": SCHEMA_VERSION,
        "root": params["root"],
        "reserve_bytes": params["reserve_bytes"],
        "user": params["user"],
        "allow": {key: params[f"{key}_allowed"] for key in ("remove", "grow", "switch")},
        "sets": params["sets"] or [list(models)],
        "models": models,
    }


def switch_plan(params: dict[str, Any], python: str) -> dict[str, Any]:
    """For the node itself, later: the files to keep, and what its unit needs.

    Other nodes are not asked then, as they serve only while a play runs.
    """
    models, network = {}, False
    for model in params["models"]:
        lasting = [
            source for source in model.get("sources") or [] if source["kind"] not in ("peer", "absent")
        ]
        wanted = {**model, "sources": lasting}
        path = Path(params["plan_dir"]) / f"{model['name']}.manifest.json"
        manifest = str(path) if model["name"] in params["manifests"] else None
        found = command.wanted(
            wanted, params["root"], manifest=manifest, reserve_bytes=params["reserve_bytes"], deep=False
        )
        found += command.token(wanted, params["token_file"]) + wishes(model, params)
        models[model["name"]] = {"arguments": found}
        network |= command.needs_network(wanted)
    kept = {f"{name}.manifest.json": manifest for name, manifest in params["manifests"].items()}
    contents = {"plan.json": plan_of(params, models), **kept}
    files = [{"name": name, "content": f"{json.dumps(each, indent=1)}\n"} for name, each in contents.items()]
    return {"files": files, "python": python, "network": network}


def facts(answers: list[Answer], done: list[Answer]) -> dict[str, Answer]:
    """What the policy must know of each model that belongs in memory."""
    keys = ("memory_bytes", "come_bytes", "copy_files", "digest")
    earlier = {record["model"]: {"come_bytes": 0, "copy_files": 0, **record} for record in done}
    known = {**earlier, **{answer["model"]: answer for answer in answers}}
    return {
        name: {key: fact[key] for key in keys}
        for name, fact in known.items()
        if fact.get("place") in (MEMORY, DEFERRED) and "memory_bytes" in fact
    }


class Arranger:
    """Asks the stager in `folder`; without need for room it is not asked."""

    def __init__(self, run: RunCommand, python: str, folder: str, params: dict[str, Any]) -> None:
        self._run = run
        self._python = python
        self._folder = folder
        self._params = params

    def arrange(
        self, answers: list[Answer], done: list[Answer], scratch: Path, *, apply: bool
    ) -> Arrangement:
        """CheckError when there is no room and none may be made."""
        known = facts(answers, done)
        if not any(fact["come_bytes"] for fact in known.values()):
            return Arrangement()
        names: dict[str, Any] = {model["name"]: {} for model in self._params["models"]}
        plan = {**plan_of(self._params, names), "facts": known}
        arguments = ["--plan", str(state.write_new(scratch, "arrange.json", json.dumps(plan)))]
        found = ask(self._run, self._python, self._folder, "arrange", arguments + ["--apply"] * apply)
        removed = tuple(found["removed"])
        there = {answer["model"] for answer in answers if answer["action"] == "none"} - set(removed)
        waits = {name: said for name, said in found["announcements"].items() if name not in there}
        needs_room = bool(removed or found["grown_to"])
        return Arrangement(waits, removed, tuple(found["sentences"]), needs_room)


def deferred_record(answer: Answer, announcement: str) -> Answer:
    """Of a model whose turn comes later; what is known of it is known now."""
    record = {**state.record(answer), "action": DEFERRED, "place": DEFERRED, "summary": announcement}
    record["names"] = answer["names"]  # an engine may be configured before its model is there
    return {**record, "come_bytes": answer["come_bytes"], "copy_files": answer["copy_files"]}
