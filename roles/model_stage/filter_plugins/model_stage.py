"""Filters of the role model_stage: who gives a model to whom, from what each node of the play has found."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

_PACKAGE = "recover_and_bench_model_stage"
# What a source of each kind needs, and what it may say.
NEEDED = {
    "hf_cache": (("path",), "{kind: hf_cache, path: /root/.cache/huggingface/hub}"),
    "directory": (("path",), "{kind: directory, path: /mnt/models/qwen}"),
    "http": (("url",), "{kind: http, url: http://files.example.org/qwen}"),
}
KEYS = {
    "hf_cache": ("path",),
    "directory": ("path",),
    "http": ("url",),
    "hub": ("endpoint",),
    "peer": (),
}
# What the calls of the module have left on a node, oldest first.
RESULTS = ("__model_stage_result", "__model_stage_started", "__model_stage_followed")

HostVars = Any  # Ansible's lazy mapping


def _package() -> ModuleType:
    """The role's module_utils as a package: Ansible makes them importable for modules only."""
    if _PACKAGE not in sys.modules:
        folder = Path(__file__).resolve().parent.parent / "module_utils" / "model_stage"
        spec = importlib.util.spec_from_file_location(
            _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise AnsibleFilterError(f"{folder} cannot be loaded")
        package = importlib.util.module_from_spec(spec)
        sys.modules[_PACKAGE] = package
        spec.loader.exec_module(package)
    return sys.modules[_PACKAGE]


_package()
rounds = importlib.import_module(f"{_PACKAGE}.rounds")


def others_may_be_needed(models: list[dict[str, Any]]) -> bool:
    """Whether a node can't try each source by itself: other nodes, or the hub before its client is there."""
    return any(source["kind"] in ("peer", "hub") for model in models for source in model["sources"])


def askable(models: list[dict[str, Any]], peers: list[str]) -> list[dict[str, Any]]:
    """The models without `another node` among their sources where there is none to ask."""
    if peers:
        return models
    return [
        {**model, "sources": [source for source in model["sources"] if source["kind"] != "peer"]}
        for model in models
    ]


def to_ask(me: str, hostvars: HostVars, batch: list[str]) -> list[str]:
    """The peers outside of the play that this node asks for all; empty for the others."""
    nodes = _nodes(hostvars, batch)
    return rounds.to_ask(nodes) if rounds.speaker(nodes) == me else []


def answers_all(holds: list[dict[str, Any]], hostvars: HostVars, batch: list[str]) -> bool:
    """Whether these offers of one peer are all that is needed."""
    return bool(rounds.answers_all(_nodes(hostvars, batch), _plain(holds)))


def plan_round(me: str, hostvars: HostVars, batch: list[str], last: bool) -> dict[str, Any]:  # noqa: FBT001 - a filter
    """This node's part of the round; the speaker has all that must be served in its own."""
    nodes = _nodes(hostvars, batch)
    parts = rounds.plan(nodes, _outside(hostvars, batch), last=last)
    speaker = rounds.speaker(nodes)
    addresses = {node.name: node.address for node in nodes}
    serve = rounds.to_serve(parts, addresses)
    for item in serve:
        item["address"] = addresses.get(item["node"]) or _address(hostvars, item["node"])
    part = parts[me]
    return {
        "speaker": speaker,
        "serve": serve if speaker == me else [],
        "givers": part.givers,
        "reasons": part.reasons,
        "waits": part.waits,
        "client": rounds.needs_client(next(node for node in nodes if node.name == me), part),
    }


def with_peers(
    models: list[dict[str, Any]], plan: Mapping[str, Any], hostvars: HostVars
) -> list[dict[str, Any]]:
    """The models with the nodes that serve them in place of `another node`."""
    plan = _plain(plan)
    part = rounds.Round(plan["givers"], plan["reasons"], plan["waits"])
    said = _plain(hostvars[plan["speaker"]].get("__model_stage_served") or {}) if plan["speaker"] else {}
    served, refused = {}, {}
    for item in said.get("results") or []:
        node = item["item"]["node"]
        if item.get("url"):
            served[node] = item["url"]
        else:
            refused[node] = (
                _no_answer(item) if item.get("unreachable") else f"can't serve it: {item.get('msg')}"
            )
    return list(rounds.ladder(_plain(models), part, served, refused))


def serving(served: Mapping[str, Any]) -> list[dict[str, str]]:
    """Those that serve now, by the results of the task that began it."""
    return [
        {"node": item["item"]["node"], "invocation": item["invocation"]}
        for item in _plain(served).get("results") or []
        if item.get("url")
    ]


def servers(plan: Mapping[str, Any], hostvars: HostVars, hosts: list[str]) -> list[dict[str, str]]:
    """All that were begun in this run, whoever did it; nothing for a node that needed none."""
    if not plan.get("speaker"):
        return []
    return [item for name in hosts for item in _plain(hostvars[name].get("__model_stage_servers") or [])]


def source_faults(models: list[dict[str, Any]]) -> list[str]:
    """Sources that lack what their kind needs, as sentences."""
    faults = []
    for model in models:
        for place, source in enumerate(model["sources"], start=1):
            kind = source["kind"]
            said = f"{model['name']}: its source {place} is of kind {kind}"
            needed, example = NEEDED.get(kind, ((), ""))
            faults += [f"{said} and has no {key}, as in {example}" for key in needed if not source.get(key)]
            foreign = [
                key for key in ("path", "url", "endpoint") if source.get(key) and key not in KEYS[kind]
            ]
            faults += [f"{said}, which has no {key}" for key in foreign]
        kinds = {source["kind"] for source in model["sources"]} & {"hf_cache", "hub"}
        if kinds and not model.get("repo"):
            faults.append(
                f"{model['name']}: a source of kind {min(kinds)} needs `repo`, as in organisation/model"
            )
    return faults


def _nodes(hostvars: HostVars, batch: list[str]) -> list[Any]:
    found = []
    for name in batch:
        own = _plain(hostvars[name].get("__model_stage_me") or {})
        results = [_plain(hostvars[name].get(key) or {}) for key in RESULTS]
        holds = {offer["name"]: offer for result in results for offer in result.get("holds") or []}
        # A copy that seemed whole may turn out not to be: that is known late.
        needs = {need["name"]: need for result in results for need in result.get("needs") or []}
        found.append(
            rounds.Node(
                name=name,
                address=own.get("address") or _address(hostvars, name),
                peers=tuple(peer for peer in own.get("peers") or [] if peer != name),
                holds=tuple(holds.values()),
                will=tuple(results[0].get("will") or []),
                needs=tuple(needs.values()),
                tried=tuple(need["name"] for result in results[1:] for need in result.get("needs") or []),
                waited=(_plain(hostvars[name].get("__model_stage_round") or {})).get("waits") or {},
                failed=any(result.get("failed") for result in results),
            )
        )
    return found


def _outside(hostvars: HostVars, batch: list[str]) -> Any:  # noqa: ANN401 - a class of the role's own package
    offers, reasons = {}, {}
    for name in batch:
        for item in _plain(hostvars[name].get("__model_stage_asked") or {}).get("results") or []:
            if "holds" in item:
                offers[item["item"]] = tuple(item["holds"])
            elif not item.get("skipped"):
                reasons[item["item"]] = _no_answer(item)
    return rounds.Outside(offers, reasons)


def _no_answer(item: dict[str, Any]) -> str:
    if item.get("unreachable"):
        return "does not answer"
    return f"can't say what it has: {str(item.get('msg', 'no reason given')).strip().splitlines()[0]}"


def _address(hostvars: HostVars, name: str) -> str:
    """Where the other nodes reach it, as far as its inventory says so."""
    variables = hostvars[name]
    return str(variables.get("model_stage_peer_address") or variables.get("ansible_host") or name)


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Without Ansible's tagged types."""
    return json.loads(json.dumps(value))


class FilterModule:
    """Ansible's way of finding filters."""

    def filters(self) -> dict[str, Any]:
        return {
            "model_stage_others_may_be_needed": others_may_be_needed,
            "model_stage_askable": askable,
            "model_stage_to_ask": to_ask,
            "model_stage_answers_all": answers_all,
            "model_stage_round": plan_round,
            "model_stage_with_peers": with_peers,
            "model_stage_serving": serving,
            "model_stage_servers": servers,
            "model_stage_source_faults": source_faults,
        }
