"""The policy as tables: which sets share the memory, what makes way, how far it grows, what is refused."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_stager.errors import NoRoomError
from model_stager.inventory import Staged
from model_stager.policy import SPARE, Allow, Scene, Wanted, choose, decide, split
from model_stager.room import Room

GB = 10**9
SHM = Path("/dev/shm")
SIZES = {"qwen": 52, "draft": 4, "kimi": 80, "eagle": 6}
QWEN, DFLASH, KIMI = ["qwen"], ["qwen", "draft"], ["kimi", "eagle"]


@pytest.mark.parametrize(
    ("sets", "capacity", "rounds"),
    [
        ([QWEN, DFLASH, KIMI], 150, [(0, 1, 2)]),
        ([QWEN, DFLASH, KIMI], 100, [(0, 1), (2,)]),
        ([QWEN, KIMI, DFLASH], 100, [(0,), (1,), (2,)]),
        ([QWEN, DFLASH], 53, [(0,), (1,)]),
        ([KIMI], 10, [(0,)]),
        ([DFLASH, QWEN, QWEN], 56, [(0, 1, 2)]),
        ([["on-disk"], QWEN], 52, [(0, 1)]),
        ([], 100, []),
    ],
    ids=["all", "two", "there-and-back", "draft-alone", "too-large", "same", "on-disk", "none"],
)
def test_sets_share_the_memory_as_long_as_they_fit(sets, capacity, rounds):
    assert [one.sets for one in split(sets, SIZES, capacity)] == rounds


@given(
    st.lists(st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=3), max_size=6),
    st.integers(90, 200),
)
def test_each_set_is_in_one_round_and_each_round_fits(sets, capacity):
    rounds = split(sets, SIZES, capacity)

    assert [place for one in rounds for place in one.sets] == list(range(len(sets)))
    for one in rounds:
        assert one.bytes == sum(SIZES[name] for name in one.names)
        assert one.bytes <= capacity or set(one.names) == set(sets[one.sets[0]])
        assert {name for place in one.sets for name in sets[place]} == set(one.names)


def old(name, size, used=0.0, digest="other"):
    return Staged(name, name.partition(".partial-")[0], size * GB, used, digest)


@pytest.mark.parametrize(
    ("shortage", "chosen"),
    [(1, ["a"]), (10, ["a"]), (11, ["a", "b"]), (50, ["c"]), (60, ["a", "c"]), (99, ["a", "b", "c"])],
)
def test_only_as_many_go_as_are_needed_least_recently_used_first(shortage, chosen):
    there = [old("a", 10, 1), old("b", 10, 2), old("c", 50, 3)]

    assert [one.name for one in choose(shortage * GB, there)] == chosen


def scene(wanted, free, there=(), *, sets=None, memory=1000, **fields):
    """`wanted`: name → what is still to come; a model that is there already lies among the old ones too."""
    models = {
        name: Wanted(name, SIZES[name] * GB, come * GB, 3 if come else 0, name)
        for name, come in wanted.items()
    }
    room = Room(
        "tmpfs", free * GB, 10_000, memory * GB, memory * GB, 100 * GB, 1000 * GB, 1000 * GB, str(SHM)
    )
    found = sorted(there, key=lambda one: one.last_used)
    return Scene(SHM, room, sets or [list(wanted)], models, found, **{"allow": Allow(), **fields})


def nobody(_one):
    return ""


def test_what_fits_needs_nothing():
    found = decide(scene({"qwen": 52, "draft": 4}, 60, [old("old", 40)]), nobody)

    assert (found.now, found.deferred, found.removals, found.grow_to) == (("qwen", "draft"), (), (), 0)


def test_old_models_make_way_where_that_is_allowed():
    there = [old("older", 30, 1), old("newer", 30, 2)]

    found = decide(scene({"qwen": 52}, 40, there, allow=Allow(remove=True)), nobody)

    assert [one.name for one in found.removals] == ["older"]


@pytest.mark.parametrize(
    ("allow", "used", "said"),
    [
        (
            Allow(),
            "",
            (
                "qwen: /dev/shm (tmpfs) has 40.0 GB free, the model needs 52.0 GB; old models there: "
                "old (30.0 GB, last used today). model_stage_grow_allowed lets /dev/shm grow; "
                "model_stage_remove_allowed lets old models be removed"
            ),
        ),
        (
            Allow(remove=True),
            "pid 7 (sglang, inference-tp1.service)",
            "old is in use by pid 7 (sglang, inference-tp1.service): end it, then run again",
        ),
    ],
    ids=["not-allowed", "in-use"],
)
def test_a_refusal_names_the_way_out(allow, used, said):
    with pytest.raises(NoRoomError, match=re.escape(said)):
        decide(scene({"qwen": 52}, 40, [old("old", 30, time.time())], allow=allow), lambda _: used)


def test_a_model_in_use_is_passed_over():
    there = [old("busy", 30, 1), old("idle", 30, 2)]

    found = decide(
        scene({"qwen": 52}, 40, there, allow=Allow(remove=True)),
        lambda one: "pid 7" if one.name == "busy" else "",
    )

    assert [one.name for one in found.removals] == ["idle"]


def test_an_older_revision_may_go_and_the_wanted_one_never():
    there = [old("qwen", 52, 1, "older"), old("draft", 4, 0, "draft")]

    found = decide(scene({"qwen": 52, "draft": 0}, 30, there, allow=Allow(remove=True)), nobody)

    assert [one.name for one in found.removals] == ["qwen"]


def test_an_unfinished_copy_of_something_else_may_go_and_that_of_the_wanted_model_never():
    wanted = {"qwen": Wanted("qwen", 52 * GB, 40 * GB, 3, "abcdef012345" * 5)}
    there = [old("qwen.partial-abcdef012345", 12), old("gone.partial-0123456789ab", 30)]
    room = Room("tmpfs", 20 * GB, 10_000, 1000 * GB, None, 100 * GB)

    found = decide(Scene(SHM, room, [["qwen"]], wanted, there, Allow(remove=True)), nobody)

    assert [one.name for one in found.removals] == ["gone.partial-0123456789ab"]


def test_the_tmpfs_grows_before_anything_is_removed():
    allow = Allow(remove=True, grow=True)

    found = decide(scene({"qwen": 52}, 40, [old("old", 60)], allow=allow), nobody)

    assert found.removals == ()
    assert 112 * GB + SPARE <= found.grow_to < 112 * GB + SPARE + 4096


def test_growing_stops_where_memory_ends():
    """50 GB of memory are left, 10 of them reserved for the engine."""
    allow = Allow(grow=True)

    with pytest.raises(NoRoomError, match=r"50\.0 GB of memory available.*10\.0 GB are reserved"):
        decide(scene({"qwen": 52}, 40, memory=50, allow=allow, reserve_bytes=10 * GB), nobody)


def test_removal_helps_where_growing_alone_would_not():
    allow = Allow(remove=True, grow=True)

    found = decide(scene({"qwen": 52}, 10, [old("old", 30)], memory=40, allow=allow), nobody)

    assert [one.name for one in found.removals] == ["old"]
    assert found.grow_to >= 112 * GB


SWITCH = [QWEN, DFLASH, KIMI]


def test_a_plan_that_does_not_fit_together_waits_for_its_turn():
    wanted = {"qwen": 52, "draft": 4, "kimi": 80, "eagle": 6}

    found = decide(scene(wanted, 100, sets=SWITCH, allow=Allow(switch=True)), nobody)

    assert [one.sets for one in found.rounds] == [(0, 1), (2,)]
    assert (found.now, found.deferred) == (("qwen", "draft"), ("kimi", "eagle"))


def test_without_being_allowed_the_switch_is_refused_by_name():
    wanted = {"qwen": 52, "draft": 4, "kimi": 80, "eagle": 6}

    with pytest.raises(NoRoomError) as caught:
        decide(scene(wanted, 100, sets=SWITCH), nobody)

    assert str(caught.value).startswith(
        "qwen and draft and kimi and eagle: /dev/shm (tmpfs) has 100.0 GB free, the models need 142.0 GB"
    )
    assert "model_stage_switch_allowed lets them take each other's place" in str(caught.value)


def there(*names):
    return [old(name, SIZES[name], place, name) for place, name in enumerate(names)]


def test_the_switch_frees_the_other_rounds_models():
    wanted = {"qwen": 0, "draft": 0, "kimi": 80, "eagle": 6}

    found = decide(
        scene(wanted, 44, there("qwen", "draft"), sets=SWITCH, allow=Allow(switch=True), round=2), nobody
    )

    assert found.now == ("kimi", "eagle")
    assert [one.name for one in found.removals] == ["qwen"], "the draft model does not have to go"


def test_a_round_that_is_whole_stays_on_the_next_run():
    """The campaign has come to its second half: staging again changes nothing."""
    wanted = {"qwen": 52, "draft": 4, "kimi": 0, "eagle": 0}

    found = decide(scene(wanted, 14, there("kimi", "eagle"), sets=SWITCH, allow=Allow(switch=True)), nobody)

    assert (found.now, found.removals) == (("kimi", "eagle"), ())
    assert found.deferred == ("qwen", "draft")


def test_the_engine_of_the_last_round_is_named_when_it_still_reads():
    wanted = {"qwen": 0, "draft": 0, "kimi": 80, "eagle": 6}
    now = scene(wanted, 44, there("qwen", "draft"), sets=SWITCH, allow=Allow(switch=True), round=2)

    with pytest.raises(NoRoomError, match="qwen is in use by pid 7"):
        decide(now, lambda one: "pid 7" if one.name == "qwen" else "")


def test_a_set_that_never_fits_is_refused_at_once():
    wanted = {"qwen": 52, "kimi": 80}

    with pytest.raises(NoRoomError, match=r"can hold 100\.0 GB at most: set `in_memory: false`"):
        decide(scene(wanted, 100, sets=[["qwen"], ["qwen", "kimi"]], allow=Allow(switch=True)), nobody)


def test_files_without_inodes_are_named():
    short = scene({"qwen": 52}, 60)
    room = Room(**{**short.room.__dict__, "free_inodes": 2})

    with pytest.raises(NoRoomError, match="has 2 free inodes, the model needs 19") as caught:
        decide(Scene(SHM, room, short.sets, short.wanted, [], Allow()), nobody)
    assert caught.value.limit == "inodes"


def test_an_unfinished_copy_of_another_revision_goes_without_leave():
    """Staging the model would remove it anyway."""
    there = [old("kimi.partial-0123456789ab", 30, 1), old("qwen.partial-0123456789ab", 30, 2)]

    found = decide(scene({"qwen": 52}, 30, there), nobody)

    assert [one.name for one in found.removals] == ["qwen.partial-0123456789ab"]


def test_files_that_the_wanted_revision_shares_are_not_won_by_removing_the_older_one():
    """22 of its 52 GB are to be linked, and must be copied after all when the older one goes."""
    enough = scene({"qwen": 30}, 20, [old("qwen", 52)], allow=Allow(remove=True))
    short = scene({"qwen": 30}, 0, [old("qwen", 51)], allow=Allow(remove=True))

    assert [one.name for one in decide(enough, nobody).removals] == ["qwen"]
    with pytest.raises(NoRoomError):
        decide(short, nobody)
