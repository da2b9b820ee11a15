"""What forks of SGLang add for DDTree is named by settings; upstream refuses it."""

from pathlib import Path

import pytest

# For each fork what group_vars says, and the words that its build then gets for a budget of 15.
FORKS = {
    "sglang_ddtree": (
        {},
        ("--speculative-algorithm DDTREE", "--speculative-ddtree-budget 15"),
    ),
    "sglang_ddtree_switch": (
        {
            "sglang_ddtree_algorithm": "DFLASH",
            "sglang_ddtree_aliases": {
                "ddtree-budget": ["speculative-ddtree-budget"],
                "ddtree-topk-cap": [],
                "ddtree-enable": ["speculative-dflash-enable-ddtree"],
            },
        },
        (
            "--speculative-algorithm DFLASH",
            "--speculative-ddtree-budget 15",
            "--speculative-dflash-enable-ddtree",
        ),
    ),
}


@pytest.mark.parametrize("fork", FORKS)
def test_every_configuration_of_the_fleet_is_accepted_in_the_forks_own_words(
    filters, settings_of, node_with_all, fork
):
    said, words = FORKS[fork]
    settings = settings_of("fleet", **said)

    wanted = filters["inference_server_wanted"](settings, node_with_all(settings, fork))

    units = {Path(each["path"]).name: each["content"] for each in wanted["files"]}
    unit = units["inference-tp1-ddtree-b15.service"].replace("\\\n", "").split()
    assert wanted["problems"] == []
    assert wanted["keep"] == []
    assert [word for word in words if word not in " ".join(unit)] == []


def test_upstream_refuses_only_what_is_in_forks(filters, settings_of, node_with_all):
    settings = settings_of("fleet")

    (problem,) = filters["inference_server_wanted"](settings, node_with_all(settings, "sglang"))["problems"]

    names = problem.removeprefix("configurations ").split(":")[0]
    assert all("ddtree" in name for name in names.split(" and ")[0].split(", "))
    assert "--speculative-ddtree-budget is unknown to this build (nearest known: --speculative-" in problem
