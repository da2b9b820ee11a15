"""A wrong key of group_vars is told with its file and line, whatever way it took through templates."""

from pathlib import Path

from ansible.parsing.dataloader import DataLoader
from setup_check.names import plan_name_problem, unknown_nodes
from setup_check.places import places

PLANS = """---
__points: &points
  code: {points: [1], requests: 2}
plans:
  small:
    name: small
    workloads:
      <<: *points
      context:
        points: [1, 2]
"""


def test_each_key_has_its_file_and_line_also_behind_an_anchor(tmp_path):
    file = tmp_path / "group_vars/plans.yml"
    file.parent.mkdir()
    file.write_text(PLANS)
    loaded = DataLoader().load_from_file(str(file))

    found = places(loaded["plans"]["small"], project=tmp_path)

    assert found["name"] == "group_vars/plans.yml:6"
    assert found["workloads.code.requests"] == "group_vars/plans.yml:3"
    assert found["workloads.context.points[1]"] == "group_vars/plans.yml:10"
    assert places(loaded["plans"]["small"], project=Path("/elsewhere"))["name"] == f"{file}:6"


def test_what_has_no_file_has_no_place():
    assert places({"name": "small", "points": [1]}, project=Path("/")) == {}


class Templates(dict):
    """Variables as Ansible gives them: a template that can't be done raises when it is looked at."""

    def __getitem__(self, name):
        if name == "plan" and self["plan_name"] not in self["plans"]:
            raise LookupError(name)
        return super().__getitem__(name)


def test_a_plan_that_is_not_there_is_named_with_the_nearest():
    plans = {"qwen3.6-27b": {}, "kimi-k2.6": {}}
    assert plan_name_problem(Templates(plans=plans, plan_name="kimi-k2.6", plan="x")) is None
    assert plan_name_problem(Templates(plans=plans, plan_name="kimi", plan="x")) == (
        "plan_name is 'kimi': there is no such plan in group_vars; did you mean 'kimi-k2.6'?"
    )


def test_a_plan_that_is_given_whole_needs_no_name():
    assert plan_name_problem({"plans": {"a": {}}, "plan_name": "b", "plan": {"name": "c"}}) is None


def test_a_node_that_the_plan_names_and_nobody_knows():
    assert list(unknown_nodes(["ct200", "ct20"], ["ct200"])) == [
        "nodes[1]: 'ct20' is no node of the inventory; did you mean 'ct200'?"
    ]
