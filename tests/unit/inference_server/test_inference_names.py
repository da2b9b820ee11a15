"""A flag that was renamed between builds is said once, in either name, and each build gets its own."""

import pytest
from ansible.module_utils.inference_server.flags import FlagError, Option
from ansible.module_utils.inference_server.names import Names


def build(*names):
    return {name: Option(name, takes_value=True) for name in names}


@pytest.fixture(scope="module")
def sglang(templates):
    template = templates["sglang"]
    return Names(template["aliases"], template["renames"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mamba-scheduler-strategy", "mamba-radix-cache-strategy"),
        ("cuda-graph-max-bs", "cuda-graph-max-bs-decode"),
        ("cuda-graph-bs", "cuda-graph-bs-decode"),
        ("piecewise-cuda-graph-max-tokens", "cuda-graph-max-bs-prefill"),
        ("tensor-parallel-size", "tp-size"),
    ],
)
def test_a_renamed_flag_is_mapped_in_both_directions_and_it_is_told(sglang, old, new):
    assert sglang.choose_all({old: 1}, build(new)) == ({new: 1}, {old: new})
    assert sglang.choose_all({new: 1}, build(old)) == ({old: 1}, {new: old})
    assert sglang.choose_all({new: 1}, build(new)) == ({new: 1}, {})


def test_of_several_names_that_a_build_knows_one_is_used(sglang):
    # Else the same settings would be another measurement.
    chosen, _ = sglang.choose_all({"tensor-parallel-size": 2}, build("tp-size", "tensor-parallel-size"))

    assert chosen == {"tp-size": 2}


def test_where_no_name_is_known_the_one_that_was_said_is_complained_about(sglang):
    assert sglang.choose("cuda-graph-max-bs", {}) == "cuda-graph-max-bs"
    assert Names({"ddtree-budget": ["a-budget", "b-budget"]}).choose("ddtree-budget", {}) == "a-budget"


def test_a_word_of_ours_is_the_flag_that_the_build_knows():
    names = Names({"ddtree-budget": ["a-budget", "b-budget"]})

    assert names.choose_all({"ddtree-budget": 15}, build("b-budget")) == ({"b-budget": 15}, {})


def test_a_setting_that_the_build_needs_no_flag_for_is_dropped():
    names = Names({"ddtree-enable": []})

    assert names.choose_all({"ddtree-enable": True, "x": 1}, {})[0] == {"x": 1}


def test_one_flag_by_two_names_is_refused(sglang):
    both = {"mamba-scheduler-strategy": "auto", "mamba-radix-cache-strategy": "no_buffer"}

    with pytest.raises(FlagError, match="mamba-radix-cache-strategy is set twice: by its own name and as"):
        sglang.choose_all(both, build("mamba-radix-cache-strategy"))


def test_no_name_belongs_to_two_flags(templates):
    for template in templates.values():
        names = [name for group in template["renames"] for name in group]

        assert len(names) == len(set(names))
