"""The LXC config of a start: anew from the main section, with devN entries resolved on the host."""

import pytest

from tests.lab.pct.conf import parse
from tests.lab.pct.errors import PctError
from tests.lab.pct.render import render

CONF = """\
arch: amd64
hostname: ct200
memory: 512
net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:02:00,ip=10.77.0.20/24,type=veth
rootfs: local-lvm:vm-200-disk-0,size=32G
lxc.cgroup2.devices.allow: c 7:* rwm
lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file
"""


def rendered(text, controllers=frozenset()):
    return render(200, parse(text, 200).main, set(controllers)).splitlines()


def test_raw_entries_come_last_and_in_their_order():
    assert rendered(CONF)[-2:] == [
        "lxc.cgroup2.devices.allow = c 7:* rwm",
        "lxc.mount.entry = /dev/nvidia0 dev/nvidia0 none bind,optional,create=file",
    ]


def test_a_rule_in_a_snapshot_does_not_count():
    lines = rendered(f"{CONF}\n[before]\nlxc.cgroup2.devices.allow: c 203:* rwm\n")

    assert not [line for line in lines if "203" in line]


def test_the_network_of_the_file_is_that_of_the_container():
    lines = rendered(CONF)

    assert "lxc.net.0.link = vmbr0" in lines
    assert "lxc.net.0.hwaddr = BC:24:11:00:02:00" in lines
    assert "lxc.net.0.ipv4.address = 10.77.0.20/24" in lines


def test_memory_is_limited_where_the_kernel_can():
    assert "lxc.cgroup2.memory.max = 536870912" in rendered(CONF, {"memory"})
    assert not [line for line in rendered(CONF) if "memory.max" in line]


def test_a_device_entry_is_resolved_to_the_numbers_of_now():
    assert "lxc.cgroup2.devices.allow = c 1:3 rw" in rendered(f"{CONF}dev0: /dev/null,mode=0666\n")


def test_a_device_entry_can_deny_writing():
    assert "lxc.cgroup2.devices.allow = c 1:3 r" in rendered(f"{CONF}dev0: /dev/null,deny-write=1\n")


def test_a_device_entry_without_node_prevents_the_start():
    with pytest.raises(PctError, match=r"^Device /dev/nvidia-none does not exist$"):
        rendered(f"{CONF}dev3: /dev/nvidia-none,mode=0666\n")


def test_a_device_entry_for_a_file_prevents_the_start(tmp_path):
    (tmp_path / "nvidia0").touch()

    with pytest.raises(PctError, match="is not a device file"):
        rendered(f"{CONF}dev0: {tmp_path}/nvidia0\n")


def test_an_unprivileged_container_may_open_all_devices():
    assert "lxc.cgroup2.devices.allow = a" in rendered(f"{CONF}unprivileged: 1\n")


def test_a_folder_of_the_host_is_mounted_read_only_where_the_file_says_so():
    lines = rendered(f"{CONF}mp0: /srv/models,mp=/models,ro=1\n")

    assert "lxc.mount.entry = /srv/models models none bind,ro,create=dir 0 0" in lines
