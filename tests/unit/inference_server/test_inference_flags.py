"""A configuration's settings, an engine's --help, and the command line they make."""

import pytest
from ansible.module_utils.inference_server.flags import (
    Option,
    check_against_build,
    check_value,
    from_words,
    parse_help,
    to_argv,
)


@pytest.fixture
def llama(help_of):
    return parse_help(help_of("llama_server"))


@pytest.fixture
def sglang(help_of):
    return parse_help(help_of("sglang_ddtree"))


def test_options_are_read_from_the_lines_that_declare_them(llama):
    assert llama["ctx-size"] == Option("ctx-size", takes_value=True)
    assert llama["metrics"] == Option("metrics", takes_value=False)
    assert "ngram-map-k4v" in llama["spec-type"].choices


def test_each_name_of_an_option_is_known(llama, sglang):
    assert {"model-draft", "spec-draft-model", "spec-draft-n-max", "draft-max"} <= set(llama)
    assert {"tensor-parallel-size", "tp-size", "model-path", "model"} <= set(sglang)


def test_a_flag_that_a_help_text_only_mentions_is_not_known(sglang):
    # "Use --cuda-graph-backend-{decode,prefill}=disabled instead." stands in another option's text.
    assert "cuda-graph-backend" not in sglang
    assert [name for name in sglang if not name[-1].isalnum()] == []


def test_the_whole_help_of_a_release_is_read(sglang):
    assert len(sglang) > 500
    assert {"speculative-algorithm", "mamba-radix-cache-strategy", "api-key"} <= set(sglang)
    assert "triton" in sglang["attention-backend"].choices
    assert sglang["cuda-graph-backend-decode"].choices == ("full", "breakable", "disabled")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-c,    --ctx-size N                     size of the context", Option("ctx-size", takes_value=True)),
        ("--spec-type [none|draft]                kinds", Option("spec-type", takes_value=True)),
        ("  -m, --model FILE      Python 3.13's layout", Option("model", takes_value=True)),
        ("  --lora-paths [LORA_PATHS ...]", Option("lora-paths", takes_value=True)),
        ("  --x {a,b}  text", Option("x", takes_value=True, choices=("a", "b"))),
        ("  --x={a,b}  text", Option("x", takes_value=True, choices=("a", "b"))),
        ("  -v, --verbose", Option("verbose", takes_value=False)),
    ],
)
def test_help_layouts(line, expected):
    assert parse_help(line) == {expected.name: expected}


def test_other_text_declares_nothing():
    assert parse_help("usage: x [--a A]\n\n                        --b is old\nsome --c text\n---\n") == {}


def test_an_unknown_flag_is_refused_with_the_nearest_names(llama):
    (problem,) = check_against_build({"threadz": 1}, llama)

    assert problem == "--threadz is unknown to this build (nearest known: --threads, --threads-batch)"


def test_an_unknown_flag_without_a_neighbour_says_so(llama):
    assert check_against_build({"quux": 1}, llama) == [
        "--quux is unknown to this build (nothing similar is known)"
    ]


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"metrics": 1}, "--metrics takes no value, but is set to 1: write true or false"),
        ({"threads": True}, "--threads needs a value, but is set to true"),
        ({"spec-type": "ngram-smiple"}, "nearest: ngram-simple"),
        ({"spec-type": ["none", "ngram-smiple"]}, "--spec-type ngram-smiple: not one of none, "),
    ],
    ids=["value for a bare flag", "no value", "unknown choice", "unknown choice in a list"],
)
def test_a_value_that_the_build_would_refuse_is_refused(llama, flags, part):
    (problem,) = check_against_build(flags, llama)

    assert part in problem


def test_what_the_build_accepts_has_no_problems(llama):
    assert (
        check_against_build({"metrics": True, "no-slots": False, "threads": 1, "spec-type": "none"}, llama)
        == []
    )


@pytest.mark.parametrize(
    ("value", "argv"),
    [
        (True, ["--x"]),
        (False, []),
        (3, ["--x", "3"]),
        (0.85, ["--x", "0.85"]),
        (-1, ["--x", "-1"]),
        ("a b", ["--x", "a b"]),
        ("-a", ["--x=-a"]),
        ([1, 2], ["--x", "1", "2"]),
        ({"b": 1, "a": [True]}, ["--x", '{"a":[true],"b":1}']),
    ],
)
def test_typed_values_become_arguments(value, argv):
    assert to_argv({"x": value}, {}) == argv


def test_false_is_said_where_the_build_has_a_word_for_it():
    assert to_argv({"x": False}, {"no-x": Option("no-x", takes_value=False)}) == ["--no-x"]


def test_arguments_are_sorted_whatever_the_order_of_the_settings():
    assert to_argv({"b": 1, "a": 2}, {}) == to_argv({"a": 2, "b": 1}, {}) == ["--a", "2", "--b", "1"]


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("--threads", 1, "without dashes in front: threads"),
        ("a b", 1, "letters, digits"),
        ("x", None, "has no value"),
        ("x", [], "empty list"),
        ("x", [{}], "numbers and texts only"),
        ("x", "", "empty text"),
        ("x", "a\nb", "line break"),
    ],
)
def test_what_cannot_be_a_flag_is_refused(name, value, part):
    assert part in check_value(name, value)


def test_words_of_a_command_line_are_read_back():
    words = ["--a", "--b=1", "--c", "1", "2", "--d", "x=y"]

    assert from_words(words) == {"a": True, "b": "1", "c": ["1", "2"], "d": "x=y"}


@pytest.mark.parametrize("value", [True, 1, 0.5, "x", ["a", 1], {"a": 1}])
def test_typed_values_are_accepted(value):
    assert check_value("speculative-algorithm", value) is None
