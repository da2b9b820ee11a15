import importlib.util
import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

PROJECT = Path(__file__).parents[2]


def plugin(name):
    """A filter plugin is no package: it is loaded by its path, as Ansible does."""
    spec = importlib.util.spec_from_file_location(name, PROJECT / f"playbooks/filter_plugins/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FilterModule().filters()


def test_models_come_in_the_order_they_are_needed_and_once():
    configurations = {
        "spec": {"model": "big", "draft_model": "small"},
        "auto": {"model": "big"},
        "other": {"model": "unplanned"},
    }
    models = {name: {"repo": name} for name in ("small", "big", "unplanned")}

    planned = plugin("planned")["planned_models"](
        models, {"configurations": ["auto", "spec"]}, configurations
    )

    assert planned == [{"name": "big", "repo": "big"}, {"name": "small", "repo": "small"}]


def test_sets_are_what_each_configuration_serves_at_the_same_time():
    configurations = {
        "auto": {"model": "qwen"},
        "auto-tp4": {"model": "qwen"},
        "spec": {"model": "qwen", "draft_model": "draft"},
        "kimi": {"model": "kimi", "draft_model": None},
    }

    sets = plugin("planned")["planned_sets"]({"configurations": list(configurations)}, configurations)

    assert sets == [["qwen"], ["qwen", "draft"], ["kimi"]]


def test_the_planned_models_need_what_is_known_of_them():
    needed = plugin("planned")["planned_bytes"]
    models = [{"name": "big"}, {"name": "small"}]

    assert needed(models, {"big": 7, "small": 2, "unplanned": 100}) == 9
    assert needed(models, {"small": 2}) == 2
    assert needed(models, {}) == 0


def test_one_node_of_each_host_speaks_for_it():
    hosts = {"ct200": "pve", "ct201": "pve", "ct300": "pve2"}
    hostvars = {node: {"pve_host": host} for node, host in hosts.items()}
    leads = plugin("planned")["leads_its_host"]

    assert [node for node in hosts if leads(node, list(hosts), hostvars)] == ["ct200", "ct300"]
    # The first one has dropped out of the run: the next one speaks.
    assert leads("ct201", ["ct201", "ct300"], hostvars)


@pytest.fixture
def diagnosis():
    gpu = {"uuid": "GPU-1", "name": "NVIDIA RTX PRO 6000 Blackwell"}
    return {
        "vmid": 200,
        "host_evidence": {
            "kernel": "6.14.8-2-pve",
            "driver": {"version": "580.95.05"},
            "proc_devices": [[195, "nvidia"], [511, "nvidia-uvm"], [226, "drm"]],
            "gpus": [{"numa_node": 0, "link": {"width": 16, "speed_gts": 32.0}}, {"numa_node": 1}],
            "containers": {"200": {"config_digest": "abc", "live": {"cpuset": "0-15"}}},
        },
        "node_evidence": {"cuda": {"device_count": 1, "cuda_version": 13010, "devices": [gpu]}},
    }


def test_the_fingerprint_names_gpus_driver_and_links(diagnosis):
    facts = plugin("host_facts")["host_facts"](diagnosis, {"GPU-1": {"power_limit_w": 450.0}})

    assert facts["gpu_model"] == "NVIDIA RTX PRO 6000 Blackwell"
    assert (facts["gpu_count"], facts["driver_version"], facts["cuda_version"]) == (1, "580.95.05", "13.1")
    assert facts["power_limit_w"] == [450.0]
    assert facts["pcie_links"] == ["x16 32.0 GT/s", None]
    assert facts["device_majors"] == {"nvidia": 195, "nvidia-uvm": 511}


def test_what_nobody_saw_is_none_and_never_a_guess():
    facts = plugin("host_facts")["host_facts"]({"vmid": 200, "host_evidence": None, "node_evidence": None})

    assert {name: value for name, value in facts.items() if value not in (None, {})} == {}
    json.dumps(facts)


def test_a_plan_that_is_not_there_is_named_with_the_nearest():
    named = plugin("planned")["plan_named"]
    plans = {"qwen3.6-27b": {"name": "qwen"}, "kimi-k2.6": {"name": "kimi"}}
    assert named(plans, "kimi-k2.6") == {"name": "kimi"}
    with pytest.raises(AnsibleFilterError, match=r"plan_name is 'qwen3.6-27': .* did you mean 'qwen3.6-27b'"):
        named(plans, "qwen3.6-27")
