"""The host's Proxmox side: pmxcfs's rules, and devices by devN."""

import json
import textwrap

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

ATTEMPTS = textwrap.dedent(
    """
    import errno, json, mmap, os
    os.chdir("/etc/pve/lxc")
    def attempt(action):
        try:
            action()
        except OSError as exc:
            return errno.errorcode[exc.errno]
        return "done"
    def write(path, size=3):
        with open(path, "wb") as file:
            file.write(b"x" * size)
    def map_for_writing():
        with open("200.conf", "r+b") as file:
            mmap.mmap(file.fileno(), 0)
    def rename_from_elsewhere():
        write("/root/x")
        os.rename("/root/x", "x")
    def replace():
        write("t")
        os.rename("t", "300.conf")
        with open("300.conf") as file:
            assert file.read() == "xxx"
        os.unlink("300.conf")
    actions = {
        "chmod 0644": lambda: os.chmod("200.conf", 0o644),
        "chmod 0640": lambda: os.chmod("200.conf", 0o640),
        "chown": lambda: os.chown("200.conf", 1, 1),
        "chown to what it is": lambda: os.chown("200.conf", 0, 33),
        "hard link": lambda: os.link("200.conf", "l"),
        "symlink": lambda: os.symlink("200.conf", "l"),
        "fifo": lambda: os.mkfifo("f"),
        "xattr": lambda: os.setxattr("200.conf", "user.a", b"1"),
        "mmap": map_for_writing,
        "rename from elsewhere": rename_from_elsewhere,
        "2 MiB": lambda: write("big", 2 << 20),
        "write beside and rename": replace,
    }
    print(json.dumps({name: attempt(action) for name, action in actions.items()}))
    """
)


def test_etc_pve_refuses_what_pmxcfs_refuses(fresh):
    assert json.loads(fresh.on("pve", f"python3 - <<'PVE'\n{ATTEMPTS}\nPVE")) == {
        "chmod 0644": "EPERM",
        "chmod 0640": "done",
        "chown": "EPERM",
        "chown to what it is": "done",
        "hard link": "EPERM",
        "symlink": "EPERM",
        "fifo": "EPERM",
        "xattr": "ENOTSUP",
        "mmap": "ENODEV",
        "rename from elsewhere": "EXDEV",
        "2 MiB": "EFBIG",
        "write beside and rename": "done",
    }


def test_what_is_written_to_etc_pve_survives_a_reboot(fresh):
    fresh.on("pve", "echo 'lxc.environment: KEPT=1' >> /etc/pve/lxc/200.conf")

    fresh.lab("reboot-host pve")

    assert "lxc.environment: KEPT=1" in fresh.on("pve", "pct config 200")


def test_a_device_entry_needs_no_rule_and_its_node_decides_the_start(fresh):
    without = "sed -i '/nvidia-uvm/d' /etc/pve/lxc/200.conf"
    fresh.on("pve", f"{without}; pct stop 200; pct set 200 --dev0 /dev/nvidia-uvm,mode=0666; pct start 200")
    fresh.wait_for("ct200")
    assert fresh.probe()["cuInit"] == 0

    refused = fresh.on("pve", "pct stop 200; rm /dev/nvidia-uvm; pct start 200", status=2)

    assert refused == "Device /dev/nvidia-uvm does not exist"
    assert fresh.on("pve", "pct status 200") == "status: stopped"


def test_a_device_is_plugged_into_a_running_container(fresh):
    fresh.on("pve", "sed -i '/nvidia-uvm/d' /etc/pve/lxc/200.conf; pct reboot 200")
    fresh.wait_for("ct200")
    assert fresh.probe()["uvm"] == "ENOENT"

    fresh.on("pve", "pct set 200 --dev0 /dev/nvidia-uvm,mode=0666")

    assert fresh.probe()["cuInit"] == 0
