"""GPUs of a node, and configurations that want others."""

import pytest
from ansible.module_utils.inference_server import gpus
from ansible.module_utils.inference_server.gpus import check_declared, check_present, gpu_environment

UUIDS = ["GPU-aaaa", "GPU-bbbb"]


@pytest.fixture
def driver(tmp_path):
    """The driver's files of two GPUs, as a container has them too; device nodes for its own ones."""

    def make(*minors):
        proc, dev = tmp_path / "gpus", tmp_path / "dev"
        dev.mkdir()
        # By PCI address the second device comes first.
        for address, uuid, minor in (("0000:01:00.0", "GPU-aaaa", 1), ("0000:c1:00.0", "GPU-bbbb", 0)):
            (proc / address).mkdir(parents=True)
            (proc / address / "information").write_text(
                f"Model: \t\t NVIDIA RTX PRO 6000\nGPU UUID: \t {uuid}\nBus Location: \t {address}\n"
                f"Device Minor: \t {minor}\n"
            )
        for minor in minors:
            (dev / f"nvidia{minor}").symlink_to("/dev/null")
        return gpus.list_gpus(proc, dev)

    return make


def test_gpus_come_in_the_order_of_their_pci_addresses(driver):
    assert driver(0, 1) == ["GPU-aaaa", "GPU-bbbb"]


def test_a_gpu_without_a_device_node_is_another_containers(driver):
    assert driver(0) == ["GPU-bbbb"]


def test_without_a_driver_there_is_none(tmp_path):
    assert gpus.list_gpus(tmp_path / "nothing", tmp_path) == []


@pytest.mark.parametrize(
    ("wanted", "tensor_parallelism", "message"),
    [
        ("0,1", 1, "gpus must be a list of indexes (0, 1, …) or UUIDs (GPU-…), not '0,1'"),
        (["cuda:0"], 1, "gpus must be a list of indexes"),
        ([True], 1, "gpus must be a list of indexes"),
        ([0, 0], 2, "gpus names one twice: 0, 0"),
        ([0, "GPU-1"], 2, "gpus mixes indexes and UUIDs"),
        ([0, 1], 4, "gpus are 2 (0, 1), fewer than its tensor_parallelism of 4"),
    ],
)
def test_gpus_that_cannot_be_meant_are_refused(wanted, tensor_parallelism, message):
    assert message in check_declared(wanted, tensor_parallelism)


@pytest.mark.parametrize("wanted", [[], [0], [0, 1, 2], ["GPU-aaaa", "MIG-4e5f"]])
def test_gpus_by_index_or_by_uuid_are_accepted(wanted):
    assert check_declared(wanted, 1) is None


@pytest.mark.parametrize(
    ("wanted", "tensor_parallelism", "there", "message"),
    [
        (
            [],
            4,
            UUIDS,
            "its tensor_parallelism of 4 needs as many GPUs, the node has 2: 0 (GPU-aaaa), 1 (GPU-bbbb)",
        ),
        ([], 1, [], "the node has 0 that can be used: playbooks/diagnose.yml says why"),
        ([1, 2], 2, UUIDS, "GPU 2 of its gpus does not exist, the node has 2: 0 (GPU-aaaa), 1 (GPU-bbbb)"),
        (["GPU-cccc"], 1, UUIDS, "GPU GPU-cccc of its gpus does not exist"),
    ],
)
def test_gpus_that_a_node_lacks_are_named_with_those_it_has(wanted, tensor_parallelism, there, message):
    assert message in check_present(wanted, tensor_parallelism, there)


@pytest.mark.parametrize("wanted", [[], [0, 1], ["GPU-bbbb", "GPU-aaaa"], ["MIG-4e5f", "MIG-6a7b"]])
def test_gpus_that_are_there_are_used(wanted):
    assert check_present(wanted, 2, UUIDS) is None


def test_gpus_reach_cuda_by_index_or_uuid():
    assert gpu_environment([]) == {}
    assert gpu_environment(["GPU-1", 2])["CUDA_VISIBLE_DEVICES"] == "GPU-1,2"
    assert gpu_environment([0])["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
