"""Who gives which model to whom: worked out from what each node has said of itself."""

import importlib.util

import pytest

from .conftest import ROLE

spec = importlib.util.spec_from_file_location(
    "model_stage_filters_under_test", ROLE / "filter_plugins/model_stage.py"
)
filters = importlib.util.module_from_spec(spec)
spec.loader.exec_module(filters)
rounds = filters.rounds

ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3", "d": "10.0.0.4"}
LADDER = [{"kind": "hf_cache", "path": "/hub"}, {"kind": "peer"}, {"kind": "hub"}]


def identity(**changed):
    return {"repo": "lab/tiny", "revision": "main", "include": ["*"], "exclude": None, **changed}


def offer(name="tiny", digest="d1", **changed):
    return {"name": name, "digest": digest, "identity": identity(**changed)}


def need(name="tiny", *, alone="no", digest=None, kinds=("hf_cache", "peer", "hub"), **changed):
    return {**offer(name, digest, **changed), "kinds": list(kinds), "alone": alone, "reason": "it is gone"}


def node(name, *, peers="abc", holds=(), will=(), needs=(), **more):
    return rounds.Node(
        name=name,
        address=ADDRESSES[name],
        peers=tuple(peer for peer in peers if peer != name),
        holds=tuple(holds),
        will=tuple(will),
        needs=tuple(needs),
        **more,
    )


def plan(*nodes, outside=None, last=False):
    return rounds.plan(list(nodes), outside or rounds.Outside(), last=last)


def test_a_node_takes_it_from_one_that_has_it():
    parts = plan(node("a", holds=[offer()]), node("b", needs=[need()]))

    assert parts["b"].givers == {"tiny": ["a"]}
    assert parts["b"].waits == {}
    assert rounds.to_serve(parts, ADDRESSES) == [{"node": "a", "allow": ["10.0.0.2"]}]


def test_those_that_ask_are_spread_over_those_that_have_it():
    holders = [node(name, peers="abcd", holds=[offer()]) for name in "ab"]
    parts = plan(*holders, *(node(name, peers="abcd", needs=[need()]) for name in "cd"))

    assert parts["c"].givers["tiny"] == ["a", "b"]
    assert parts["d"].givers["tiny"] == ["b", "a"], (
        "the other is the next one to ask when the first goes away"
    )


def test_where_none_has_it_the_first_that_can_get_it_does_and_the_others_wait():
    parts = plan(*(node(name, needs=[need(alone="perhaps")]) for name in "abc"))

    assert parts["a"].waits == {}
    assert parts["b"].waits == parts["c"].waits == {"tiny": "a"}
    assert rounds.to_serve(parts, ADDRESSES) == []


@pytest.mark.parametrize(
    ("first", "second"), [("perhaps", "yes"), ("no", "perhaps"), ("no", "yes")], ids="-".join
)
def test_a_node_that_surely_can_comes_before_one_that_perhaps_can(first, second):
    parts = plan(node("a", needs=[need(alone=first)]), node("b", needs=[need(alone=second)]))

    assert parts["a"].waits == {"tiny": "b"}
    assert parts["b"].waits == {}


def test_one_that_copies_from_its_own_disk_is_waited_for():
    parts = plan(node("a", needs=[need(alone="yes")]), node("b", will=[offer()]))

    assert parts["a"].waits == {"tiny": "b"}, "the hub is not asked for what a node has on its disk"


def test_each_model_has_a_first_node_of_its_own():
    target, draft = need("target", alone="yes"), need("draft", alone="no")
    other = [need("target", alone="no"), need("draft", alone="yes")]
    parts = plan(node("a", needs=[target, draft]), node("b", needs=other))

    assert parts["a"].waits == {"draft": "b"}
    assert parts["b"].waits == {"target": "a"}


def test_when_nobody_can_get_it_nobody_waits():
    parts = plan(node("a", needs=[need()]), node("b", needs=[need()]))

    assert parts["a"].waits == parts["b"].waits == {}
    assert parts["a"].reasons == {"tiny": "b does not have it"}


def test_a_node_that_was_waited_for_in_vain_is_not_waited_for_again():
    late = node("b", needs=[need(alone="perhaps")], waited={"tiny": "a"})
    parts = plan(node("a", needs=[need(alone="perhaps")], failed=True), late, last=True)

    assert parts["b"].waits == {}
    assert parts["b"].reasons == {"tiny": "a was to get it first, and has not got it"}


def test_a_node_that_has_failed_is_not_waited_for():
    parts = plan(node("a", will=[offer()], failed=True), node("b", needs=[need(alone="yes")]))

    assert parts["b"].waits == {}


def test_a_node_that_may_not_ask_the_first_goes_its_own_way():
    parts = plan(node("a", needs=[need(alone="yes")]), node("b", peers="c", needs=[need(alone="perhaps")]))

    assert parts["b"].waits == {}


@pytest.mark.parametrize(
    ("wanted", "given", "same"),
    [
        (need(digest="d1"), offer(digest="d1", revision="other"), True),
        (need(digest="d1"), offer(digest="d2"), False),
        (need(), offer(), True),
        (need(revision="v2"), offer(), False),
        (need(revision="c0ffee"), {**offer(), "commit": "c0ffee"}, True),
        (need(repo="lab/other"), offer(), False),
        (need(include=["*.json"]), offer(), False),
        (need(), offer(exclude=["*.md"]), True),
        (need(exclude=["*.bin"]), offer(exclude=["*.md"]), False),
        (need("other"), offer(), False),
    ],
    ids=[
        "digest",
        "other-digest",
        "asked-for-alike",
        "other-revision",
        "commit-of-a-branch",
        "other-repo",
        "other-files",
        "default-exclude",
        "other-exclude",
        "other-name",
    ],
)
def test_what_is_the_same_model(wanted, given, same):
    assert rounds.same(wanted, given) is same


def test_peers_outside_of_the_play_are_asked_only_for_what_nobody_inside_has():
    needy = node("b", peers="acd", needs=[need()])

    assert rounds.to_ask([needy]) == ["a", "c", "d"]
    assert rounds.to_ask([node("a", holds=[offer()]), needy]) == []
    assert rounds.to_ask([node("a"), needy]) == ["c", "d"]


def test_the_reasons_name_each_peer():
    outside = rounds.Outside({"c": (offer(revision="v9"),)}, {"d": "does not answer"})
    parts = plan(node("a"), node("b", peers="acd", needs=[need()]), outside=outside)

    assert parts["b"].reasons == {
        "tiny": "d does not answer; c has another revision of it; a does not have it"
    }


def test_a_peer_outside_of_the_play_gives():
    outside = rounds.Outside({"d": (offer(),)})
    parts = plan(node("b", peers="acd", needs=[need()]), outside=outside)

    assert parts["b"].givers == {"tiny": ["d"]}


def test_the_hub_is_prepared_for_only_where_it_comes_next():
    needy = node("b", needs=[need()])

    assert rounds.needs_client(needy, rounds.Round())
    assert not rounds.needs_client(needy, rounds.Round(givers={"tiny": ["a"]}))
    assert not rounds.needs_client(needy, rounds.Round(waits={"tiny": "a"}))
    tried = node("b", needs=[need()], tried=("tiny",))
    assert rounds.needs_client(tried, rounds.Round(givers={"tiny": ["a"]})), "the node could not give it"
    local = node("b", needs=[need(kinds=("hf_cache", "peer"))])
    assert not rounds.needs_client(local, rounds.Round())


# The filters: the same from Ansible's variables.


def play(**changed):
    """Three nodes: a has it, b and c need it; d is not in the play."""
    asks = {"needs": [need()], "holds": [], "will": []}
    hostvars = {
        "a": {"__model_stage_result": {"holds": [offer()], "needs": [], "will": []}},
        "b": {"__model_stage_result": asks},
        "c": {"__model_stage_result": asks, "ansible_host": "c.lan"},
        "d": {"ansible_host": "10.0.0.4"},
    }
    for name in "abc":
        peers = [peer for peer in "abcd" if peer != name]
        hostvars[name]["__model_stage_me"] = {"peers": peers, "address": ADDRESSES[name]}
    for name, variables in changed.items():
        hostvars[name] = {**hostvars[name], **variables}
    return hostvars


def test_one_node_speaks_for_all():
    hostvars = play()
    parts = {name: filters.plan_round(name, hostvars, list("abc"), last=False) for name in "abc"}

    assert {part["speaker"] for part in parts.values()} == {"b"}
    allow = ["10.0.0.2", "10.0.0.3"]
    assert parts["b"]["serve"] == [{"node": "a", "address": "10.0.0.1", "allow": allow}]
    assert parts["c"]["serve"] == []
    assert parts["c"]["givers"] == {"tiny": ["a"]}


def test_the_ladder_has_those_that_serve_in_the_place_of_another_node():
    served = [{"item": {"node": "a"}, "url": "http://10.0.0.1:8790", "invocation": "i1"}]
    hostvars = play(b={"__model_stage_served": {"results": served}})
    part = filters.plan_round("c", hostvars, list("abc"), last=False)

    (model,) = filters.with_peers([{"name": "tiny", "sources": LADDER}], part, hostvars)

    assert model["sources"] == [
        LADDER[0],
        {"kind": "peer", "name": "a", "url": "http://10.0.0.1:8790/tiny"},
        LADDER[2],
    ]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"unreachable": True, "msg": "ssh: no route"}, "a does not answer"),
        ({"msg": "the port is taken"}, "a can't serve it: the port is taken"),
    ],
    ids=["away", "refuses"],
)
def test_one_that_does_not_serve_is_a_reason_in_the_ladder(result, reason):
    hostvars = play(b={"__model_stage_served": {"results": [{"item": {"node": "a"}, **result}]}})
    part = filters.plan_round("b", hostvars, list("abc"), last=False)

    (model,) = filters.with_peers([{"name": "tiny", "sources": LADDER}], part, hostvars)

    assert model["sources"][1] == {"kind": "absent", "name": "another node", "reason": reason}


def test_a_peer_outside_of_the_play_that_is_away_is_a_reason():
    asked = {"results": [{"item": "d", "unreachable": True, "msg": "timed out"}]}
    hostvars = play(a={"__model_stage_result": {}}, b={"__model_stage_asked": asked})
    part = filters.plan_round("b", hostvars, list("abc"), last=False)

    assert part["reasons"] == {"tiny": "d does not answer; a, c do not have it"}


def test_what_has_arrived_is_given_on_and_is_no_need_any_more():
    hostvars = play(
        a={"__model_stage_result": {}}, b={"__model_stage_followed": {"holds": [offer()], "finished": True}}
    )
    part = filters.plan_round("c", hostvars, list("abc"), last=True)

    assert part["speaker"] == "c"
    assert part["givers"] == {"tiny": ["b"]}


def test_servers_are_ended_by_each_node_that_needed_one():
    begun = [{"node": "a", "invocation": "i1"}]
    hostvars = play(b={"__model_stage_servers": begun})

    assert filters.servers({"speaker": "b"}, hostvars, list("abc")) == begun
    assert filters.servers({"waits": {}}, hostvars, list("abc")) == [], "it asked nobody"


def test_without_other_nodes_there_is_none_to_ask():
    (model,) = filters.askable([{"name": "tiny", "sources": LADDER}], [])

    assert [source["kind"] for source in model["sources"]] == ["hf_cache", "hub"]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ({"kind": "http"}, "tiny: its source 1 is of kind http and has no url, as in {kind: http, url: "),
        ({"kind": "directory"}, "tiny: its source 1 is of kind directory and has no path, as in "),
        ({"kind": "peer", "url": "http://x"}, "tiny: its source 1 is of kind peer, which has no url"),
        ({"kind": "hub", "path": "/x"}, "tiny: its source 1 is of kind hub, which has no path"),
    ],
    ids=lambda value: value.get("kind") if isinstance(value, dict) else None,
)
def test_a_source_without_what_its_kind_needs_is_refused(source, fault):
    (found,) = filters.source_faults([{"name": "tiny", "repo": "lab/tiny", "sources": [source]}])

    assert found.startswith(fault)


def test_sources_that_go_by_the_repo_need_it():
    assert filters.source_faults([{"name": "tiny", "sources": LADDER}]) == [
        "tiny: a source of kind hf_cache needs `repo`, as in organisation/model"
    ]
    assert filters.source_faults([{"name": "tiny", "repo": "lab/tiny", "sources": LADDER}]) == []
