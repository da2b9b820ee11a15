import pytest
from setup_check.inventory import inventory_problems

GROUPS = {"pve_hosts": ["kpro6"], "nodes": ["ct200"]}
HOST = {"ansible_host": "10.0.0.6", "gpu_count": 8}
NODE = {"ansible_host": "10.0.0.200", "pve_host": "kpro6", "vmid": 200}


def problems(*, groups=GROUPS, **hostvars):
    return inventory_problems(groups, {"kpro6": HOST, "ct200": NODE, **hostvars}, source="hosts.yml")


def test_a_sound_inventory_has_no_problem():
    assert problems() == []


def test_the_unedited_example_is_refused_in_one_sentence():
    found = problems(kpro6={**HOST, "inventory_is_example": True})

    assert len(found) == 1
    assert found[0].startswith("hosts.yml is still the example: put your own host and node in it")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            {"vmid": 200},
            "node ct200: pve_host is missing: name the Proxmox VE host it runs on, as in pve_host: kpro6",
        ),
        (
            {"vmid": 200, "pve_host": "kpro5"},
            "node ct200: pve_host is 'kpro5', which is not in the group pve_hosts; did you mean 'kpro6'?",
        ),
        (
            {"pve_host": "kpro6"},
            "node ct200: vmid is missing; the container's number from `pct list` is needed, as in vmid: 200",
        ),
        (
            {"pve_host": "kpro6", "vmid": "200"},
            "node ct200: vmid is '200'; the container's number from `pct list` is needed, as in vmid: 200",
        ),
    ],
    ids=["no host", "unknown host", "no vmid", "vmid as text"],
)
def test_a_node_that_is_not_described_is_named_with_what_it_needs(node, expected):
    assert problems(ct200=node) == [f"hosts.yml: {expected}"]


@pytest.mark.parametrize("count", [None, 0, -1, "8", True])
def test_a_host_says_how_many_gpus_it_must_show(count):
    [found] = problems(kpro6={"gpu_count": count})

    assert "the number of GPUs it must show is needed, as in gpu_count: 8" in found


def test_an_empty_group_is_named():
    assert problems(groups={"pve_hosts": ["kpro6"], "nodes": []}) == [
        "hosts.yml: the group nodes is empty or missing: each container that is benchmarked goes there"
    ]


def test_one_container_is_one_node_and_one_address():
    groups = {"pve_hosts": ["kpro6"], "nodes": ["ct200", "again"]}

    assert problems(groups=groups, again=NODE) == [
        "hosts.yml: nodes ct200 and again are both vmid 200 of kpro6: one container is one node",
        "hosts.yml: nodes ct200 and again have the same address 10.0.0.200",
    ]
