"""The node's evidence, gathered here: this machine is as good a node as any."""

import os
import stat

import pytest
from ansible.module_utils.gpu_probe import node_facts
from ansible.module_utils.gpu_probe.limited import LimitedCall
from ansible.module_utils.gpu_probe.node_probe import probe_node
from ansible.module_utils.gpu_probe.reading import Reader, age_s


def opened(dev, gpus=1):
    found = LimitedCall(
        lambda report: node_facts.open_device_nodes(report, gpus=gpus, dev=str(dev)), 5
    ).result()
    return {node["path"]: node for node in node_facts.tidy_nodes(found)}


def test_one_call_gathers_everything():
    evidence = probe_node({"gpus": 1, "limit_s": 5.0})

    assert evidence["boot_id"]
    assert evidence["uptime_s"] > 0
    assert evidence["shm"]["total_bytes"] > 0
    assert evidence["memory"]["MemTotal"] > 0
    assert evidence["cpus"]
    assert evidence["nodes_status"] == "ok"
    assert evidence["seconds"] < 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_a_device_node_is_opened_for_real(tmp_path):
    for name, number in {"nvidiactl": (1, 3), "nvidia0": (511, 77)}.items():
        os.mknod(tmp_path / name, stat.S_IFCHR | 0o666, os.makedev(*number))

    nodes = opened(tmp_path)

    assert nodes["/dev/nvidiactl"]["open"] in (
        "ok",
        "EACCES",
    )  # EACCES where the scratch folder is mounted nodev
    assert nodes["/dev/nvidia0"]["open"] in ("ENXIO", "EACCES")
    assert (nodes["/dev/nvidia0"]["major"], nodes["/dev/nvidia0"]["minor"]) == (511, 77)
    assert nodes["/dev/nvidia-uvm"] | {"mount_options": ""} == {
        "path": "/dev/nvidia-uvm",
        "type": "missing",
        "error": "ENOENT",
        "open": "ENOENT",
        "mount_options": "",
    }


def test_a_regular_file_in_place_of_a_node_is_told(tmp_path):
    (tmp_path / "nvidia-uvm").write_text("")

    assert opened(tmp_path)["/dev/nvidia-uvm"]["type"] == "file"


def test_folders_and_render_nodes_are_listed_but_not_opened(tmp_path):
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri/renderD128").write_text("")

    nodes = opened(tmp_path)

    assert "open" not in nodes["/dev/nvidia-caps"]
    assert "open" not in nodes["/dev/dri/renderD128"]


def test_the_tightest_memory_limit_on_the_way_up_counts(tmp_path):
    for folder, limit in {"a": "8589934592", "a/b": "max", "a/b/c": "9000000000"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "memory.max").write_text(limit + "\n")
    group = tmp_path / "cgroup"
    group.write_text("0::/a/b/c\n")

    assert node_facts.memory_limit(Reader(), cgroup=str(group), root=str(tmp_path)) == {
        "limit_bytes": 8589934592,
        "limit_path": f"{tmp_path}/a/memory.max",
    }


@pytest.mark.parametrize(
    ("text", "unprivileged"),
    [("         0          0 4294967295\n", False), ("         0     100000      65536\n", True)],
)
def test_an_id_map_makes_a_container_unprivileged(tmp_path, text, unprivileged):
    (tmp_path / "uid_map").write_text(text)

    assert node_facts.id_map(Reader(), str(tmp_path / "uid_map"))["unprivileged"] is unprivileged


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 8], "0-2,8"), ([0, 2, 3, 9, 10], "0,2-3,9-10")]
)
def test_cpus_are_written_as_the_kernel_does(numbers, text):
    assert node_facts.number_ranges(numbers) == text


def test_a_shm_that_is_not_there_is_unseen():
    reader = Reader()

    assert node_facts.shm_facts(reader, "/nowhere/shm") == {"path": "/nowhere/shm"}
    assert reader.unseen == [{"what": "/nowhere/shm", "why": "ENOENT"}]


def test_the_age_of_a_process_is_its_own():
    assert 0 <= age_s(Reader(), os.getpid()) < age_s(Reader(), 1)
