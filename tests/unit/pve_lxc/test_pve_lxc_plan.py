"""What a container's file should hold, as tables: file, majors and wishes in, entries out."""

import sys
from pathlib import Path

import pytest
from ansible.module_utils.pve_lxc.conf import decode, parse
from ansible.module_utils.pve_lxc.edit import apply
from ansible.module_utils.pve_lxc.errors import NotReady, Refused
from ansible.module_utils.pve_lxc.situation import Node

sys.path.insert(0, str(Path(__file__).parent))
from pve_lxc_laws import NODES, PROC_DEVICES, edited, plan_for

BASE = "arch: amd64\nhostname: ct200\n"
UVM_MOUNT = "lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file\n"
MOUNTS = "".join(f"lxc.mount.entry: {n.path} {n.path[1:]} none bind,optional,create=file\n" for n in NODES)
DEVICES = "".join(f"dev{number}: {node.path},mode=0666\n" for number, node in enumerate(NODES))
NEEDED = [f"lxc.cgroup2.devices.allow: c {major}:* rwm" for major in (195, 511, 508)]


def rule(value):
    return f"lxc.cgroup2.devices.allow: {value}\n"


def lines(text):
    return [line for line in text.splitlines() if line not in BASE.splitlines() and line not in MOUNTS]


@pytest.fixture
def case(cases):
    return lambda name: decode((cases / f"{name}.conf").read_bytes())


def test_the_seed_gets_the_major_that_nvidia_uvm_has_now(case):
    """195, 509, 226 and 234 are allowed, nvidia-uvm has become 511."""
    before = case("seed-missing-511")
    devices = PROC_DEVICES.replace("508 nvidia-caps\n", "")
    nodes = [node for node in NODES if node.path != "/dev/nvidia1"]
    after = edited(before, "rules", nodes=nodes, proc_devices=devices)
    assert [line for line in after.splitlines() if line not in before.splitlines()] == [
        "lxc.cgroup2.devices.allow: c 511:* rwm"
    ]
    assert [line for line in before.splitlines() if line not in after.splitlines()] == [
        "lxc.cgroup2.devices.allow: c 509:* rwm",  # NVIDIA's by our records, nobody's now
        "lxc.cgroup2.devices.allow: c 234:* rwm",  # nobody's
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", NEEDED, id="none"),
        pytest.param(rule("c 195:* rwm"), NEEDED, id="one"),
        pytest.param(rule("a"), [rule("a").strip()], id="all-allowed"),
        pytest.param(rule("c 195:* rw") + rule("c 511:* rwm") + rule("c 508:* rw"), None, id="without-mknod"),
        pytest.param(
            rule("c 195:* r"),
            ["lxc.cgroup2.devices.allow: c 195:* r", *NEEDED],
            id="read-only-rule-does-not-count",
        ),
        pytest.param(
            rule("c 195:0 rw") + rule("c 195:1 rw") + rule("c 195:255 rw"),
            [*(f"lxc.cgroup2.devices.allow: c 195:{minor} rw" for minor in (0, 1, 255)), *NEEDED[1:]],
            id="the-nodes-one-by-one",
        ),
        pytest.param(
            "lxc.cgroup.devices.allow: c 195:* rwm\n",
            ["lxc.cgroup.devices.allow: c 195:* rwm", *NEEDED],
            id="v1-does-not-count",
        ),
        pytest.param(
            " lxc.cgroup2.devices.allow: c 195:* rwm\n",
            [" lxc.cgroup2.devices.allow: c 195:* rwm", *NEEDED],
            id="ignored-line-does-not-count",
        ),
        pytest.param(
            rule("c  511:* rwm") + rule("c 195:* rw # gpu") + rule("c 1fc:* rwm"),
            [f"lxc.cgroup2.devices.allow: {rule}" for rule in ("c 511:* rwm", "c 195:* rw", "c 508:* rwm")],
            id="what-lxc-refuses-is-rewritten-in-place",
        ),
        pytest.param(
            rule("c 188:* rw # serial"),
            ["lxc.cgroup2.devices.allow: c 188:* rw", *NEEDED],
            id="others-rules-that-stop-the-start-too",
        ),
        pytest.param(
            "lxc.cgroup2.devices.deny: a\n", ["lxc.cgroup2.devices.deny: a", *NEEDED], id="after-deny-all"
        ),
        pytest.param(
            rule("b 259:* rwm") + rule("c 188:* rwm") + rule("c 10:200 rwm"),
            [rule("b 259:* rwm").strip(), rule("c 188:* rwm").strip(), rule("c 10:200 rwm").strip(), *NEEDED],
            id="others-devices-stay",
        ),
    ],
)
def test_rules(before, after):
    text = BASE + before + MOUNTS
    assert lines(edited(text, "rules")) == (after if after is not None else lines(text))


def test_rules_in_snapshots_and_pending_do_not_count():
    before = BASE + MOUNTS + "\n[pve:pending]\nmemory: 1\n[snap]\n" + "".join(f"{line}\n" for line in NEEDED)
    after = edited(before, "rules")
    assert after.index(NEEDED[1]) < after.index("[pve:pending]")
    assert after.endswith(before[before.index("\n[pve:pending]") :])


def test_a_line_of_dri_is_added_only_without_any():
    dri = "lxc.mount.entry: /dev/dri dev/dri none bind,optional,create=dir\n"
    assert rule("c 226:* rwm") in edited(BASE + MOUNTS + dri, "rules")
    assert rule("c 226:* rwm") not in edited(BASE + rule("c 226:0 rwm") + MOUNTS + dri, "rules")
    assert rule("c 226:* rwm") not in edited(BASE + MOUNTS, "rules")


@pytest.mark.parametrize(
    ("line", "more", "stays"),
    [
        pytest.param("c 509:* rwm", {}, False, id="recorded-and-unused"),
        pytest.param("c 240:* rwm", {}, False, id="recorded-and-another-drivers-now"),
        pytest.param("c 240:* rwm", {"records": {}}, True, id="another-drivers-and-not-recorded"),
        pytest.param(
            "c 240:* rwm", {"records": {}, "former_majors": [240]}, False, id="as-the-operator-says"
        ),
        pytest.param("c 507:* rwm", {"records": {}}, False, id="dynamic-and-unused"),
        pytest.param("c 188:* rwm", {"records": {}}, True, id="static-and-unused"),
        pytest.param("c 509:1 rwm", {}, True, id="of-one-minor"),
        pytest.param("b 509:* rwm", {}, True, id="of-a-block-device"),
        pytest.param("c 507:* rwm", {"extra_majors": [507]}, True, id="asked-for"),
        pytest.param("c 511:* rwm", {}, True, id="nvidias-now"),
    ],
)
def test_stale_rules(line, more, stays):
    after = edited(BASE + rule(line) + MOUNTS, "rules", **more)
    assert (rule(line) in after) == stays


def test_what_is_left_of_another_driver_is_said():
    plan = plan_for(BASE + rule("c 240:* rwm") + MOUNTS, "rules", records={})
    assert len(plan.notes) == 1
    assert "line 3 allows major 240, which is other's now" in plan.notes[0]
    assert "set pve_lxc_former_majors: [240]" in plan.notes[0]


def test_majors_are_recorded_and_never_forgotten():
    assert plan_for(BASE, "rules").records == {
        "509": ["nvidia-uvm"],
        "240": ["nvidia-caps"],
        "195": ["nvidia", "nvidiactl", "nvidia-modeset"],
        "511": ["nvidia-uvm"],
        "508": ["nvidia-caps"],
    }


@pytest.mark.parametrize("key", ["unprivileged: 1\n", "lxc.idmap: u 0 100000 65536\n"])
def test_unprivileged_containers_keep_their_rules(key):
    before = BASE + key + rule("c 507:* rwm") + MOUNTS
    assert edited(before, "rules") == before
    assert plan_for(before, "rules").notes == [
        "unprivileged container: Proxmox allows it every device, so its rules are left alone"
    ]


def test_missing_mounts_are_added_in_rules_mode():
    after = edited(BASE + UVM_MOUNT, "auto")
    assert all(
        f"lxc.mount.entry: {n.path} {n.path[1:]} none bind,optional,create=file\n" in after for n in NODES
    )


def test_a_mount_to_the_wrong_place_does_not_deliver():
    after = edited(BASE + "lxc.mount.entry: /dev/nvidia0 nvidia0 none bind\n" + UVM_MOUNT, "rules")
    assert "lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file\n" in after


def test_a_mounted_folder_delivers_what_is_in_it():
    assert "create=file" not in edited(BASE + "lxc.mount.entry: /dev dev none bind\n", "rules")


def test_a_node_that_the_host_lacks_is_not_mounted():
    nodes = [Node("/dev/nvidia0", "nvidia", 0, exists=False), *NODES[1:]]
    assert "/dev/nvidia0 " not in edited(BASE, "rules", nodes=nodes)


@pytest.mark.parametrize(
    ("text", "version", "mode"),
    [
        pytest.param(BASE, "8.2.4", "devices", id="new-enough"),
        pytest.param(BASE, "8.1.10", "rules", id="too-old"),
        pytest.param(BASE, "", "rules", id="unknown"),
        pytest.param(BASE + UVM_MOUNT, "9.1.1", "rules", id="mounts-it"),
        pytest.param(BASE + "lxc.hook.mount: /usr/share/lxc/hooks/nvidia\n", "9.1.1", "rules", id="hook"),
        pytest.param(BASE + "dev0: /dev/nvidia0\n", "", "devices", id="has-devn"),
    ],
)
def test_auto_chooses(text, version, mode):
    assert plan_for(text, "auto", pve_version=version).mode == mode


def test_devices_are_added_at_free_numbers():
    before = BASE + "dev1: /dev/kvm\n[pve:pending]\ndev2: /dev/x\n"
    after = edited(before, "devices")
    assert after == (
        BASE + "dev1: /dev/kvm\ndev0: /dev/nvidia0,mode=0666\ndev3: /dev/nvidia1,mode=0666\n"
        "dev4: /dev/nvidiactl,mode=0666\ndev5: /dev/nvidia-uvm,mode=0666\n"
        "dev6: /dev/nvidia-uvm-tools,mode=0666\n"
        "[pve:pending]\ndev2: /dev/x\n"
    )


def test_devices_take_the_place_of_mounts_when_asked_for():
    after = edited(BASE + rule("c 195:* rwm") + MOUNTS, "devices")
    assert after == BASE + DEVICES + rule("c 195:* rwm")


@pytest.mark.parametrize(
    ("value", "after"),
    [
        ("/dev/nvidia0,mode=666", "/dev/nvidia0,mode=0666"),
        ("/dev/nvidia0", "/dev/nvidia0,mode=0666"),
        ("/dev/nvidia0,mode=0660,gid=44", "/dev/nvidia0,mode=0666,gid=44"),
        ("/dev/nvidia0,mode=0666,deny-write=1", "/dev/nvidia0,mode=0666"),
        ("path=/dev/nvidia0,mode=0777,uid=5", "path=/dev/nvidia0,mode=0777,uid=5"),
    ],
)
def test_devn_entries_that_not_everybody_could_open_are_mended(value, after):
    text = BASE + DEVICES.replace("/dev/nvidia0,mode=0666", value)
    assert edited(text, "devices") == BASE + DEVICES.replace("/dev/nvidia0,mode=0666", after)


def test_devn_and_a_mount_of_one_node_never_stay_together():
    both = BASE + DEVICES + rule("c 195:* rwm") + UVM_MOUNT
    assert "dev3" not in edited(both, "auto")
    assert UVM_MOUNT not in edited(both, "devices")
    twice = BASE + "dev3: /dev/nvidia-uvm\ndev3: /dev/nvidia-uvm,mode=0666\n" + MOUNTS
    assert "dev3" not in edited(twice, "rules")


def test_devn_in_rules_mode_needs_no_rule_and_no_mount():
    after = edited(BASE + DEVICES, "rules")
    assert [line for line in after.splitlines() if line.startswith("lxc.")] == [NEEDED[2]]


@pytest.mark.parametrize(
    ("text", "grant", "more", "message"),
    [
        pytest.param("", "auto", {}, "no settings at all", id="emptied"),
        pytest.param(BASE + "lock: backup\n", "auto", {}, "locked (backup)", id="locked"),
        pytest.param(BASE + "template: 1\n", "auto", {}, "is a template", id="template"),
        pytest.param(
            BASE + "lxc.hook.mount: /usr/share/lxc/hooks/nvidia\n",
            "devices",
            {},
            "set pve_lxc_grant to rules or auto",
            id="hook-and-devices",
        ),
        pytest.param(
            BASE + rule("a") + "lxc.cgroup2.devices.deny: c 511:* rwm\n" + MOUNTS,
            "rules",
            {},
            "line 4 denies major 511 (nvidia-uvm) on purpose",
            id="denied-on-purpose",
        ),
        pytest.param(
            BASE + "".join(f"dev{number}: /dev/ttyS{number}\n" for number in range(256)),
            "devices",
            {},
            "no devN is free for /dev/nvidia0: all 256 are taken",
            id="no-free-number",
        ),
    ],
)
def test_refusals(text, grant, more, message):
    with pytest.raises(Refused) as refusal:
        plan_for(text, grant, **more)
    assert message in str(refusal.value)


@pytest.mark.parametrize("driver", ["nvidia", "nvidia-uvm"])
def test_without_the_drivers_nothing_is_planned(driver):
    devices = "\n".join(line for line in PROC_DEVICES.split("\n") if not line.endswith(f" {driver}"))
    with pytest.raises(NotReady, match=f"no {driver}"):
        plan_for(BASE, "rules", proc_devices=devices)


def test_the_old_name_of_the_core_driver_counts():
    devices = "Character devices:\n195 nvidia-frontend\n511 nvidia-uvm\n"
    nodes = [Node("/dev/nvidia0", "nvidia-frontend", 0)]
    assert rule("c 195:* rwm") in edited(BASE, "rules", proc_devices=devices, nodes=nodes)


def test_names_are_matched_exactly():
    devices = PROC_DEVICES.replace("240 other", "240 nvidia-fs\n241 nvidiafb")
    after = edited(BASE + MOUNTS, "rules", proc_devices=devices)
    assert "c 240:" not in after
    assert "c 241:" not in after


def test_crlf_files_get_crlf_lines():
    text = (BASE + MOUNTS).replace("\n", "\r\n")
    assert edited(text, "rules").count("\r\n") == edited(text, "rules").count("\n")


def test_a_file_without_final_line_end_keeps_that():
    after = edited(BASE + rule("c 195:* rwm").rstrip("\n"), "rules")
    assert not after.endswith("\n")
    assert rule("c 195:* rwm") + rule("c 511:* rwm") in after


def test_an_edit_that_would_reach_further_is_caught():
    config = parse(BASE)
    plan = plan_for(BASE, "rules")
    plan.edit.add_entries.append(("lxc.tty.max", "1\n[snapshot]"))
    with pytest.raises(Exception, match="would change more than it should"):
        apply(config, plan.edit)
