"""Which nodes a host should have, what stands there instead, and what is done about it."""

from pathlib import Path

import pytest
from ansible.module_utils.pve_lxc import drivers, nodes
from ansible.module_utils.pve_lxc.conf import parse
from ansible.module_utils.pve_lxc.errors import PveLxcError

DEVICES = "Character devices:\n195 nvidia\n511 nvidia-uvm\n508 nvidia-caps\n507 nvidia-nvswitch\n"
INFORMATION = "Model: \t\t NVIDIA H200\nDevice Minor: \t {}\nGPU Excluded:\t No\n"


def names(found):
    return [node.name for node in found]


def test_the_driver_says_which_gpus_there_are(tmp_path):
    for number, minor in enumerate((3, 0)):
        folder = tmp_path / f"gpus/0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(minor))
    assert nodes.gpu_minors(tmp_path, tmp_path, 8) == [0, 3]


def test_without_its_word_the_nodes_and_the_expected_number_count(tmp_path):
    for name in ("nvidia5", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert nodes.gpu_minors(tmp_path / "none", tmp_path, 2) == [0, 1, 5]


def test_the_nodes_that_cuda_opens():
    found = nodes.host_nodes(DEVICES, [0, 1])
    assert [(n.name, n.major, n.minor) for n in found] == [
        ("nvidia0", 195, 0),
        ("nvidia1", 195, 1),
        ("nvidiactl", 195, 255),
        ("nvidia-uvm", 511, 0),
        ("nvidia-uvm-tools", 511, 1),
    ]


def test_nodes_that_a_file_names_come_too_but_no_gpu_that_is_not_there():
    config = parse(
        "dev0: /dev/nvidia-modeset\ndev1: path=/dev/nvidia7,mode=0666\ndev2: /dev/kvm\n"
        "lxc.mount.entry: /dev/nvidia-caps/nvidia-cap2 dev/nvidia-caps/nvidia-cap2 none bind\n"
        "lxc.mount.entry: /dev/nvidia-caps dev/nvidia-caps none bind,create=dir\n"
        "lxc.mount.entry: /dev/nvidia-nvswitch1 dev/nvidia-nvswitch1 none bind\n"
    )
    found = nodes.host_nodes(DEVICES, [0], nodes.named_in(config))
    assert [(n.name, n.major, n.minor) for n in found[4:]] == [
        ("nvidia-caps/nvidia-cap2", 508, 2),
        ("nvidia-nvswitch1", 507, 1),
        ("nvidia-modeset", 195, 254),
    ]


@pytest.mark.parametrize(
    ("in_file", "expected", "gpus"),
    [
        ([], 0, ["nvidia0", "nvidia1", "nvidia2"]),
        (["nvidia1"], 0, ["nvidia1"]),
        (["nvidia1"], 1, ["nvidia1"]),
        (["nvidia1"], 3, ["nvidia0", "nvidia1", "nvidia2"]),
        (["nvidiactl"], 2, ["nvidia0", "nvidia1", "nvidia2"]),
    ],
)
def test_a_container_keeps_to_its_own_gpus(tmp_path, in_file, expected, gpus):
    found = nodes.container_nodes(nodes.host_nodes(DEVICES, [0, 1, 2]), tmp_path, in_file, expected)
    assert [node.path.removeprefix("/dev/") for node in found] == [
        *gpus,
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
    ]


def test_nvidias_helper_is_asked_in_its_own_words():
    """With -u it makes the nodes of nvidia-uvm and no other."""
    assert nodes.helper_arguments(nodes.host_nodes(DEVICES, [0, 1], ["nvidia-nvswitch0"])) == [
        ["-u", "-c", "0"],
        ["-c", "0", "-c", "1", "-c", "255"],
    ]


# Loading


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "devices"
    path.write_text("Character devices:\n195 nvidia\n")
    return path


def runner(kernel, codes, log):
    def run(command):
        log.append([Path(command[0]).name, *command[1:]])
        if codes.get(log[-1][-1], 0) == 0:
            kernel.write_text(kernel.read_text() + "511 nvidia-uvm\n")
        return (
            codes.get(log[-1][-1], 0),
            "",
            "modprobe: ERROR: could not insert: Key was rejected by service\n",
        )

    return run


@pytest.mark.parametrize(
    ("programs", "command"),
    [
        (["nvidia-modprobe", "modprobe"], ["nvidia-modprobe", "-u", "-c", "0"]),
        (["modprobe"], ["modprobe", "nvidia-uvm"]),
    ],
)
def test_loading_prefers_nvidias_helper(kernel, programs, command):
    log = []
    find = {name: f"/sbin/{name}" for name in programs}
    assert drivers.load(kernel, runner(kernel, {}, log), lambda name: find.get(name, "")) == ["nvidia-uvm"]
    assert log == [command]
    assert drivers.load(kernel, runner(kernel, {}, log), lambda name: find.get(name, "")) == []
    assert log == [command]


def test_a_module_that_is_refused_is_told_with_the_kernels_words(kernel):
    with pytest.raises(
        PveLxcError, match=r"nvidia-uvm couldn't be loaded: .*Key was rejected by service.*dkms"
    ):
        drivers.load(
            kernel, runner(kernel, {"nvidia-uvm": 1}, []), lambda name: name if name == "modprobe" else ""
        )


def test_a_host_without_any_loader_says_so(kernel):
    with pytest.raises(PveLxcError, match="neither nvidia-modprobe nor modprobe"):
        drivers.load(kernel, runner(kernel, {}, []), lambda _: "")
