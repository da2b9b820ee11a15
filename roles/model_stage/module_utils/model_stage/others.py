"""What a node can't take from its own disks: models that other nodes, or the hub, may have to give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .stager import CheckError

if TYPE_CHECKING:
    from collections.abc import Callable

Model = dict[str, Any]

NO_SOURCE = 3  # the stager's exit code: nobody it may ask has all files

NOT_ASKED = {"kind": "absent", "name": "the other nodes", "reason": "not asked yet"}
NO_CLIENT = {"kind": "absent", "name": "the hub", "reason": "its client is not on the node yet"}


def is_open(source: dict[str, Any]) -> bool:
    """A rung that says `another node`; the role puts those that have the model in its place."""
    return source["kind"] == "peer" and not source.get("url")


def own(model: Model, *, client: bool) -> Model:
    """The rungs before the first that this node can't try by itself, and a word for what comes after."""
    rungs = []
    for source in model.get("sources") or []:
        if is_open(source):
            rungs.append(NOT_ASKED)
            break
        if source["kind"] == "hub" and not client:
            rungs.append(NO_CLIENT)
            break
        rungs.append(source)
    return {**model, "sources": rungs}


def alone(model: Model, *, client: bool) -> Model:
    """The whole ladder without other nodes; without the hub too, where its client is not there."""
    rungs = [source for source in model.get("sources") or [] if not is_open(source)]
    asked = [source if client or source["kind"] != "hub" else NO_CLIENT for source in rungs]
    return {**model, "sources": asked or [NOT_ASKED]}


def needs_others(model: Model, *, client: bool) -> bool:
    """Whether there is a rung that this node can't try by itself."""
    sources = model.get("sources") or []
    return any(is_open(each) or (each["kind"] == "hub" and not client) for each in sources)


def look(model: Model, ask: Callable[[Model], dict[str, Any]], *, client: bool, hold: bool) -> dict[str, Any]:
    """The stager's own answer; or, with `hold`, under `needs` what must be had from others."""
    if not (hold and needs_others(model, client=client)):
        return ask(alone(model, client=True))
    try:
        return ask(own(model, client=client))
    except CheckError as exc:
        if exc.exit_code != NO_SOURCE:
            raise
        needs = need(model, str(exc))
    try:
        needs.update(alone="yes", digest=ask(alone(model, client=client))["digest"])
    except CheckError as exc:
        if exc.exit_code != NO_SOURCE:
            raise
        if "hub" in needs["kinds"] and not client:
            needs["alone"] = "perhaps"
    return {"needs": needs}


def need(model: Model, reason: str) -> dict[str, Any]:
    """What other nodes are asked for, and why."""
    name = model["name"]
    return {
        "name": name,
        "identity": identity(model),
        "kinds": [source["kind"] for source in model["sources"]],
        "reason": reason[len(name) + 2 :] if reason.startswith(f"{name}: ") else reason,
        "digest": None,
        "alone": "no",
    }


def asking(needs: dict[str, Any]) -> str:
    """The line while others are asked."""
    return f"{needs['name']}: no own copy, {_whom(needs)} is asked next"


def would_ask(needs: dict[str, Any]) -> str:
    """The line in check mode, with the reason why the node's own copies are not enough."""
    return f"{needs['name']}: would ask {_whom(needs)} for it ({needs['reason']})"


def _whom(needs: dict[str, Any]) -> str:
    words = {"peer": "another node", "hub": "the hub"}
    return " or else ".join(word for kind, word in words.items() if kind in needs["kinds"])


def identity(model: Model) -> dict[str, Any]:
    """What makes two nodes' models of one name the same, as far as it can be told without their files."""
    return {
        "repo": model.get("repo"),
        "revision": model.get("revision") or "main",
        "include": model.get("include") or ["*"],
        "exclude": model.get("exclude"),
    }
