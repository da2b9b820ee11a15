"""Which node gives which model to whom: pure, and the same on each node that works it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Offer = dict[str, Any]  # name, digest, identity


@dataclass(frozen=True)
class Node:
    """What one node of the play has said of itself."""

    name: str
    address: str
    peers: tuple[str, ...]
    holds: tuple[Offer, ...]  # published and proven
    will: tuple[Offer, ...]  # on their way, by its own sources
    needs: tuple[dict[str, Any], ...]
    waited: dict[str, str] = field(default_factory=dict)  # in the round before: model -> the node waited for
    tried: tuple[str, ...] = ()  # models whose copying has failed already
    failed: bool = False

    def open_needs(self) -> tuple[dict[str, Any], ...]:
        """What other nodes can be asked for, and is not there yet."""
        there = {offer["name"] for offer in self.holds}
        return tuple(
            need
            for need in self.needs
            if "peer" in need["kinds"] and need["name"] not in there and self.peers
        )


@dataclass(frozen=True)
class Outside:
    """What is known of the peers that are not in the play: their offers, or why there are none."""

    offers: dict[str, tuple[Offer, ...]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass
class Round:
    """One node's part."""

    givers: dict[str, list[str]] = field(default_factory=dict)  # model -> nodes, the first is asked first
    reasons: dict[str, str] = field(default_factory=dict)  # model -> why no node gives it
    waits: dict[str, str] = field(default_factory=dict)  # model -> the node that fetches it first


def same(need: dict[str, Any], offer: Offer) -> bool:
    """Whether it is the model that is wanted: by its digest, else by what was asked for."""
    if need["name"] != offer["name"]:
        return False
    if need.get("digest") and offer.get("digest"):
        return bool(need["digest"] == offer["digest"])
    wanted, given = need["identity"], offer["identity"]
    alike = wanted["repo"] == given["repo"] and wanted["include"] == given["include"]
    # What the stager leaves out by itself is not spelled out in the role's variables.
    excluded = [identity["exclude"] for identity in (wanted, given) if identity["exclude"] is not None]
    alike = alike and excluded[1:] in ([], excluded[:1])
    return alike and wanted["revision"] in (given["revision"], offer.get("commit"))


def speaker(nodes: list[Node]) -> str:
    """The one that asks and starts peers for all: the first with an open need; empty when there is none."""
    return next((node.name for node in nodes if node.open_needs() and not node.failed), "")


def to_ask(nodes: list[Node]) -> list[str]:
    """Peers outside of the play, where a model is not held inside of it: in their order, each once."""
    inside = {node.name: node for node in nodes}
    found: dict[str, None] = {}
    for node in nodes:
        for need in node.open_needs():
            if not any(_holds(inside[peer], need) for peer in node.peers if peer in inside):
                found.update(dict.fromkeys(peer for peer in node.peers if peer not in inside))
    return list(found)


def answers_all(nodes: list[Node], offers: list[Offer]) -> bool:
    """Whether one peer has all that is needed, so that no other has to be asked."""
    return all(any(same(need, offer) for offer in offers) for node in nodes for need in node.open_needs())


def plan(nodes: list[Node], outside: Outside, *, last: bool) -> dict[str, Round]:
    """Each node's part of this round; in the last one nobody waits for another node any more."""
    rounds = {node.name: Round() for node in nodes}
    leaders = [] if last else _leaders(nodes)
    asked: dict[str, int] = {}
    for node in nodes:
        for need in node.open_needs():
            part, name = rounds[node.name], need["name"]
            givers = [peer for peer in node.peers if _gives(peer, need, nodes, outside)]
            if givers:
                turn = asked.setdefault(name, 0) % len(givers)
                asked[name] += 1
                part.givers[name] = givers[turn:] + givers[:turn]
                continue
            leader = _leader_for(node, need, leaders)
            if leader and leader != node.name:
                part.waits[name] = leader
            part.reasons[name] = _why_not(node, need, nodes, outside)
    return rounds


def needs_client(node: Node, part: Round) -> bool:
    """Whether the hub comes next for a model; not while a node gives it: there may be no way to the hub."""
    there = {offer["name"] for offer in node.holds}
    return any(
        "hub" in need["kinds"]
        and need["name"] not in there
        and (need["name"] in node.tried or need["name"] not in {**part.givers, **part.waits})
        for need in node.needs
    )


def to_serve(rounds: dict[str, Round], addresses: dict[str, str]) -> list[dict[str, Any]]:
    """Each giver, and the addresses of those that will ask it."""
    askers: dict[str, set[str]] = {}
    for name, part in rounds.items():
        for givers in part.givers.values():
            for giver in givers:
                askers.setdefault(giver, set()).add(addresses[name])
    return [{"node": giver, "allow": sorted(allowed)} for giver, allowed in sorted(askers.items())]


def ladder(
    models: list[dict[str, Any]], part: Round, served: dict[str, str], refused: dict[str, str]
) -> list[dict[str, Any]]:
    """The models with real sources in place of `another node`. `served`: node -> URL of its root."""
    return [{**model, "sources": _rungs(model, part, served, refused)} for model in models]


def _rungs(
    model: dict[str, Any], part: Round, served: dict[str, str], refused: dict[str, str]
) -> list[dict[str, Any]]:
    name, found = model["name"], []
    for source in model["sources"]:
        if source["kind"] != "peer" or source.get("url"):
            found.append(source)
            continue
        givers = part.givers.get(name, [])
        rungs = [
            {"kind": "peer", "name": giver, "url": f"{served[giver]}/{name}"}
            for giver in givers
            if giver in served
        ]
        lost = [
            f"{giver} {refused.get(giver, 'does not serve it')}" for giver in givers if giver not in served
        ]
        if not rungs:
            reason = "; ".join(lost) or part.reasons.get(name, "there is none to ask")
            rungs = [{"kind": "absent", "name": "another node", "reason": reason}]
        found += rungs
    return found


def _leaders(nodes: list[Node]) -> list[tuple[str, Offer]]:
    """Who has each model first: those that copy it from their own disks, then those that may get it."""
    able = [(node.name, offer) for node in nodes if not node.failed for offer in node.will]
    for wanted in ("yes", "perhaps"):
        able += [
            (node.name, need)
            for node in nodes
            if not node.failed
            for need in node.open_needs()
            if need["alone"] == wanted
        ]
    return able


def _leader_for(node: Node, need: dict[str, Any], leaders: list[tuple[str, Offer]]) -> str | None:
    """The first that can have it, if this node may ask that one."""
    for name, offer in leaders:
        if same(need, offer):
            return name if name in (node.name, *node.peers) else None
    return None


def _holds(node: Node, need: dict[str, Any]) -> bool:
    return any(same(need, offer) for offer in node.holds)


def _gives(peer: str, need: dict[str, Any], nodes: list[Node], outside: Outside) -> bool:
    inside = next((node for node in nodes if node.name == peer), None)
    if inside is not None:
        return _holds(inside, need)
    return any(same(need, offer) for offer in outside.offers.get(peer, ()))


def _why_not(node: Node, need: dict[str, Any], nodes: list[Node], outside: Outside) -> str:
    """One sentence a kind of reason: `ct201 does not answer; ct202, ct203 do not have it`."""
    if need["name"] in node.waited:
        return f"{node.waited[need['name']]} was to get it first, and has not got it"
    inside = {other.name: other for other in nodes}
    silent, others, without = [], [], []
    for peer in node.peers:
        offers = inside[peer].holds if peer in inside else outside.offers.get(peer)
        if peer in outside.reasons:
            silent.append(f"{peer} {outside.reasons[peer]}")
        elif any(offer["name"] == need["name"] for offer in offers or ()):
            others.append(peer)
        elif offers is not None:
            without.append(peer)
    found = silent
    if others:
        found.append(f"{', '.join(others)} {'has' if len(others) == 1 else 'have'} another revision of it")
    if without:
        found.append(f"{', '.join(without)} {'does' if len(without) == 1 else 'do'} not have it")
    return "; ".join(found) or "no other node was asked"
