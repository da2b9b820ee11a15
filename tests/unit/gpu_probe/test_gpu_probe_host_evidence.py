"""The host's evidence, gathered from a scratch machine of real files, and device nodes where root runs it."""

import json
import os
import stat
import subprocess
import sys
import time

import pytest
from ansible.module_utils.gpu_probe import host_containers, host_driver, host_kernel_log, host_pci
from ansible.module_utils.gpu_probe.bundle import node_program
from ansible.module_utils.gpu_probe.host_probe import probe_host
from ansible.module_utils.gpu_probe.host_processes import gpu_processes
from ansible.module_utils.gpu_probe.reading import Reader

PROC_DEVICES = """\
Character devices:
  1 mem
195 nvidia
195 nvidia-modeset
226 drm
511 nvidia-uvm

Block devices:
  7 loop
511 not-a-character-device
"""
NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
INFORMATION = "Model: \t\t NVIDIA RTX\nGPU UUID: \t GPU-1\nDevice Minor: \t 3\n"
PCT = """\
#!/bin/sh
case "$1 $2" in
"status 200") printf 'cpus: 32\\nlock: backup\\nname: ct200\\nstatus: running\\nuptime: 380\\nvmid: 200\\n' ;;
"status 201") printf 'status: stopped\\n' ;;
"exec 200") shift 3; exec "$@" ;;
*) echo "Configuration file 'nodes/kpro6/lxc/$2.conf' does not exist" >&2; exit 2 ;;
esac
"""
CONFIG = "arch: amd64\nlxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\n"


@pytest.fixture
def machine(tmp_path):
    """A small Proxmox VE host with one GPU, as files."""
    put = {
        "proc/devices": PROC_DEVICES,
        "proc/nvidia/version": NVRM,
        "proc/nvidia/gpus/0000:01:00.0/information": INFORMATION,
        "sys/module/nvidia/version": "580.95.05\n",
        "sys/module/nvidia/srcversion": "ABC\n",
        f"modules/{os.uname().release}/updates/dkms/nvidia.ko.zst": "",
        "modules/5.0-other/updates/dkms/nvidia.ko": "",
        "pve/lxc/200.conf": CONFIG,
        "pve/nodes/kpro7/lxc/299.conf": "",
        "pve/ha/resources.cfg": "ct: 200\n\tstate started\n\nvm: 201\n",
        "cgroup/lxc/200/memory.max": "1073741824\n",
        "cgroup/lxc/200/memory.current": "4096\n",
        "cgroup/lxc/200/cpuset.cpus.effective": "0-31\n",
        "records.json": json.dumps({"schema_version": 1, "majors": {"509": ["nvidia-uvm"]}}),
        "dev/nvidiactl": "",
        "pct": PCT,
    }
    for name, text in put.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "pct").chmod(0o755)
    gpu = tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    gpu.mkdir(parents=True)
    for folder, width in ((gpu.parent, "8"), (gpu, "16")):
        for name, text in {
            "vendor": "0x10de",
            "class": "0x030200",
            "device": "0x2bb1",
            "current_link_width": "8",
            "max_link_width": width,
            "current_link_speed": "2.5 GT/s PCIe",
            "max_link_speed": "32.0 GT/s PCIe",
        }.items():
            (folder / name).write_text(text + "\n")
    driver = tmp_path / "sys/bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    (gpu / "driver").symlink_to(driver)
    listed = tmp_path / "sys/bus/pci/devices"
    listed.mkdir()
    (listed / gpu.name).symlink_to(gpu)
    other = listed / "0000:00:1f.0"
    other.mkdir()
    (other / "vendor").write_text("0x8086\n")
    (other / "class").write_text("0x030000\n")
    return tmp_path


@pytest.fixture
def asked(machine):
    return {
        "vmids": [200],
        "through_host": False,
        "node": {},
        "conf_dir": str(machine / "pve/lxc"),
        "proc_devices": str(machine / "proc/devices"),
        "dev": str(machine / "dev"),
        "pci_devices": str(machine / "sys/bus/pci/devices"),
        "proc_driver": str(machine / "proc/nvidia"),
        "sys_module": str(machine / "sys/module"),
        "modules_root": str(machine / "modules"),
        "cgroup_root": str(machine / "cgroup"),
        "ha_file": str(machine / "pve/ha/resources.cfg"),
        "major_records": str(machine / "records.json"),
        "pct": str(machine / "pct"),
        "nvml_library": "libdoes-not-exist.so",
    }


def test_one_call_gathers_everything(asked):
    evidence = probe_host(asked)

    assert evidence["proc_devices"] == [
        [1, "mem"],
        [195, "nvidia"],
        [195, "nvidia-modeset"],
        [226, "drm"],
        [511, "nvidia-uvm"],
    ]
    assert evidence["driver"]["version"] == "580.95.05"
    assert evidence["driver"]["open_modules"] is True
    assert evidence["driver"]["gpus"] == [{"name": "NVIDIA RTX", "uuid": "GPU-1", "minor": 3}]
    assert evidence["driver"]["modules"] == {"nvidia": {"version": "580.95.05", "srcversion": "ABC"}}
    assert evidence["driver"]["module_file"]["path"].endswith("nvidia.ko.zst")
    assert set(evidence["driver"]["built_for"]) == {os.uname().release, "5.0-other"}
    assert evidence["major_records"] == {"509": ["nvidia-uvm"]}
    assert evidence["boot_id"]
    assert evidence["memory"]["MemTotal"] > 0
    assert json.dumps(evidence)


def test_the_gpu_has_its_link_and_that_of_its_slot(asked):
    (gpu,) = probe_host(asked)["gpus"]

    assert (gpu["pci"], gpu["driver"], gpu["device"]) == ("0000:01:00.0", "nvidia", "0x2bb1")
    assert gpu["link"] == {"width": 8, "max_width": 16, "speed_gts": 2.5, "max_speed_gts": 32.0}
    assert gpu["port_link"]["max_width"] == 8


def test_the_container_is_told_with_lock_limits_and_digest(asked):
    container = probe_host(asked)["containers"]["200"]

    assert container["config_text"] == CONFIG
    assert len(container["config_digest"]) == 40
    assert container["status"] == {"state": "running", "lock": "backup", "uptime": 380}
    assert container["ha_managed"] is True
    assert container["live"]["memory_max_bytes"] == 1 << 30
    assert container["live"]["cpuset"] == "0-31"


def test_a_container_of_another_host_is_found_there(asked):
    container = probe_host(dict(asked, vmids=[299]))["containers"]["299"]

    assert container["config_exists"] is False
    assert container["elsewhere"] == ["kpro7"]
    assert container["status"]["exists"] is False


def test_a_node_that_the_file_names_is_looked_at_though_it_is_missing(asked):
    nodes = {node["path"]: node for node in probe_host(asked)["device_nodes"]}

    assert nodes["/dev/nvidia0"] == {"path": "/dev/nvidia0", "type": "missing", "error": "ENOENT"}
    assert nodes["/dev/nvidiactl"]["type"] == "file"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_device_numbers_are_decimal(asked, machine):
    os.mknod(machine / "dev/nvidia-uvm", stat.S_IFCHR | 0o666, os.makedev(511, 1))
    (machine / "dev/nvidia-uvm").chmod(0o666)

    nodes = {node["path"]: node for node in probe_host(asked)["device_nodes"]}

    found = nodes["/dev/nvidia-uvm"]
    assert (found["type"], found["major"], found["minor"], found["mode"]) == ("char", 511, 1, "0666")


def test_what_is_not_there_is_unseen_and_not_guessed(asked, machine):
    gone = str(machine / "nowhere")
    evidence = probe_host(dict(asked, proc_devices=gone, pci_devices=gone, modules_root=gone, pct=gone))

    assert evidence["proc_devices"] is None
    assert evidence["gpus"] is None
    assert evidence["driver"]["module_file"] is None
    assert evidence["containers"]["200"]["status"]["error"] == "not installed"
    unseen = {entry["what"] for entry in evidence["unseen"]}
    assert {gone, "pct status 200"} <= unseen


def test_the_node_is_looked_into_through_the_host(asked):
    evidence = probe_host(dict(asked, through_host=True, node={"gpus": 1, "limit_s": 5.0}))

    inside = evidence["containers"]["200"]["node"]
    assert inside["hostname"] == os.uname().nodename
    assert inside["cuda"]["status"] in ("ok", "no_library")
    assert "nvidia-uvm" in json.dumps(inside["device_nodes"])


def test_a_file_that_can_not_be_read_is_not_taken_for_missing(asked, machine):
    """A folder stands for a file without permission: root may read any file."""
    (machine / "pve/lxc/200.conf").unlink()
    (machine / "pve/lxc/200.conf").mkdir()

    evidence = probe_host(asked)

    container = evidence["containers"]["200"]
    assert (container["config_exists"], container["config_text"], "elsewhere" in container) == (
        None,
        None,
        False,
    )
    assert str(machine / "pve/lxc/200.conf") in {entry["what"] for entry in evidence["unseen"]}


def test_a_user_without_sbin_on_the_path_finds_the_hosts_commands(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    assert Reader().command(["ldconfig", "--version"])["rc"] == 0


def test_a_container_without_python_is_unseen(machine):
    (machine / "pct").write_text("#!/bin/sh\necho 'python3: not found' >&2; exit 127\n")
    reader = Reader()

    found = host_containers.probe_through_host(reader, 200, pct=str(machine / "pct"), asked={}, limit_s=5.0)

    assert found is None
    assert reader.unseen == [{"what": "pct exec 200 -- python3", "why": "python3: not found"}]


def test_the_node_program_needs_nothing_but_python(tmp_path):
    program = node_program({"gpus": 2, "shm": str(tmp_path), "dev": str(tmp_path)})

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-"],
        input=program,
        capture_output=True,
        text=True,
        check=True,
    )

    evidence = json.loads(done.stdout)
    assert evidence["shm"]["path"] == str(tmp_path)
    assert [node["path"] for node in evidence["device_nodes"]] == [
        "/dev/nvidia-uvm",
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/dev/nvidiactl",
    ]
    assert {node["open"] for node in evidence["device_nodes"]} == {"ENOENT"}


KERNEL_LINES = """\
[    1.0] Linux version 6.8.12-9-pve
[    9.1] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05
[   80.2] NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[   80.3] NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.
[   90.0] NVRM: Xid (PCI:0000:01:00): 31, pid=991, name=python3, Ch 00000010, MMU Fault
[   90.1] NVRM: Xid (PCI:0000:01:00): 31, pid=991, name=python3, Ch 00000010, MMU Fault
[   95.0] NVRM: GPU 0000:81:00.0: RmInitAdapter failed! (0x62:0x40:2015)
[   96.0] nvidia: module verification failed: signature and/or required key missing - tainting kernel
[   97.0] Loading of unsigned module is rejected
[   98.0] nvidia: disagrees about version of symbol module_layout
[   99.0] nouveau 0000:01:00.0: NVIDIA GB202 (1b2000a1)
[  100.0] NVRM: No NVIDIA GPU found.
"""


def test_the_kernel_log_is_read_for_what_matters():
    found = [
        (line["kind"], line.get("xid"), line.get("pci"), line["count"])
        for line in host_kernel_log.interesting(KERNEL_LINES)
    ]

    assert found == [
        ("xid", 79, "0000:41:00.0", 1),
        ("fell_off_bus", None, None, 1),
        ("xid", 31, "0000:01:00.0", 2),
        ("gsp", None, None, 1),
        ("refused", None, None, 1),
        ("unfit", None, None, 1),
        ("nouveau", None, None, 1),
        ("no_gpu", None, None, 1),
    ]


def test_a_tainting_module_was_loaded_all_the_same():
    line = "nvidia: module verification failed: signature and/or required key missing - tainting kernel"

    assert host_kernel_log.read_line(line) is None


def test_secure_boot_is_read_from_its_variable(tmp_path):
    folder = tmp_path / "efi/efivars"
    folder.mkdir(parents=True)
    (folder / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\x06\x00\x00\x00\x01")

    assert host_driver.secure_boot(Reader(), str(folder)) is True
    assert host_driver.secure_boot(Reader(), str(tmp_path / "no-efi/efivars")) is False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees other processes' files")
def test_a_process_with_a_gpu_file_is_named_with_its_container(tmp_path):
    process = tmp_path / "4711"
    (process / "fd").mkdir(parents=True)
    (process / "fd/3").symlink_to("/dev/nvidia0")
    (process / "fd/4").symlink_to("/dev/null")
    (process / "cgroup").write_text("0::/lxc/201/ns/system.slice/jupyter.service\n")
    (process / "cmdline").write_text("/usr/bin/python3\0--token\0secret\0")
    (process / "comm").write_text("python3\n")

    assert gpu_processes(Reader(), str(tmp_path)) == [
        {
            "pid": 4711,
            "name": "python3",
            "program": "python3",
            "vmid": 201,
            "unit": "jupyter.service",
            "files": ["/dev/nvidia0"],
        }
    ]


def test_the_last_start_is_told_and_no_earlier_one():
    class Journal(Reader):
        def command(self, argv, **_more):
            assert "pve-container@200.service" in argv
            lines = [
                "Started old",
                "old failure",
                "Started PVE LXC Container: 200.",
                "Device /dev/x does not exist",
            ]
            return {"rc": 0, "stdout": "\n".join(lines), "stderr": "", "why": ""}

    assert host_containers.start_log(Journal(), 200) == [
        "Started PVE LXC Container: 200.",
        "Device /dev/x does not exist",
    ]


def test_a_command_that_does_not_end_is_given_up():
    began = time.monotonic()

    answer = Reader().command(["sleep", "30"], limit_s=0.2)

    assert (answer["rc"], answer["why"]) == (None, "no answer within 0.2 s")
    assert time.monotonic() - began < 5


def test_an_unknown_link_width_is_none(tmp_path):
    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    for name, text in {"vendor": "0x10de", "class": "0x030000", "current_link_width": "255"}.items():
        (device / name).write_text(text)
    (device / "current_link_speed").write_text("Unknown\n")

    (gpu,) = host_pci.gpu_inventory(Reader(), str(tmp_path))

    assert gpu["link"] == {"width": None, "max_width": None, "speed_gts": None, "max_speed_gts": None}
    assert gpu["driver"] is None
