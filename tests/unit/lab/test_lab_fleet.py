"""Names and addresses are the same on every run, and a size that does not fit is refused."""

import pytest

from tests.lab.errors import LabError
from tests.lab.fleet import load_fleet, make_fleet, save_fleet


def test_the_default_is_one_host_with_one_node():
    fleet = make_fleet()

    assert [(host.name, host.address) for host in fleet.hosts] == [("pve", "10.77.0.10")]
    assert [(node.name, node.vmid, node.address, node.host) for node in fleet.nodes] == [
        ("ct200", 200, "10.77.0.20", "pve")
    ]


def test_two_hosts_with_two_nodes_each_have_container_ids_of_their_own():
    fleet = make_fleet(2, 2)

    assert fleet.names == ("pve", "pve2", "ct200", "ct201", "ct202", "ct203")
    assert [node.host for node in fleet.nodes] == ["pve", "pve", "pve2", "pve2"]


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (9, 20)])
def test_no_two_machines_share_an_address_or_a_mac(size):
    machines = make_fleet(*size).machines

    assert len({machine.address for machine in machines}) == len(machines)
    assert len({machine.mac for machine in machines}) == len(machines)


@pytest.mark.parametrize(
    ("size", "words"), [((0, 1), "--hosts 0"), ((10, 1), "1 to 9 hosts"), ((1, 21), "1 to 20 nodes")]
)
def test_a_size_without_room_is_refused(size, words):
    with pytest.raises(LabError, match=words):
        make_fleet(*size)


def test_a_name_that_is_not_there_is_refused_with_those_that_are():
    fleet = make_fleet(2, 1)

    with pytest.raises(LabError, match="pve, pve2"):
        fleet.host("pve9")
    with pytest.raises(LabError, match="ct200, ct201"):
        fleet.node("pve")


def test_the_size_survives_being_written_and_read(tmp_path):
    save_fleet(make_fleet(2, 3), tmp_path / "fleet.json")

    assert load_fleet(tmp_path / "fleet.json") == make_fleet(2, 3)


def test_no_file_means_no_lab(tmp_path):
    assert load_fleet(tmp_path / "fleet.json") is None
