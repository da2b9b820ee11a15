"""The repair ladder on the lab: faults made for real, each with the step that heals it, or the refusal."""

import json

import pytest
from story import CU_INIT, HOST, NODE, PROJECT, lab, lab_inventory, on

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

CONF = "/etc/pve/lxc/200.conf"
RECOVER = "playbooks/recover.yml"
NO_HOT_PLUG = ("-e", "pve_lxc_hot_plug_enabled=false")


@pytest.fixture(scope="module")
def repaired(operator):
    """A lab whose first fault, the one of the story, is repaired."""
    lab("up", "--fresh")
    assert operator.run(RECOVER).status == 0
    assert on(NODE, CU_INIT).strip() == "0"
    return operator


def steps(run):
    return [entry["step"] for entry in run.recovery["nodes"][NODE].get("steps", []) if entry["changed"]]


def causes(run):
    return {entry["name"] for entry in run.recovery["nodes"][NODE]["causes"]}


def pid_of_init():
    return on(HOST, "lxc-info -n 200 -pH").strip()


@pytest.mark.parametrize(
    ("fault", "cause", "taken"),
    [
        ("uvm-rule-missing", "uvm_major_not_allowed", ["fix_config", "hot_plug"]),
        ("snapshot-only-rule", "rule_only_in_snapshot", ["fix_config", "hot_plug"]),
        ("ignored-line", "rule_line_ignored_by_pve", ["fix_config", "hot_plug"]),
        ("v1-rule", "rule_is_cgroup_v1", ["fix_config", "hot_plug"]),
        ("stale-rule", "stale_rule_grants_other_driver", ["fix_config", "hot_plug"]),
        ("module-not-loaded", "uvm_module_not_loaded", ["load_modules", "restart_container"]),
        ("device-node-missing", "host_node_missing", ["make_nodes", "restart_container"]),
        ("devn-missing-node", "devn_without_host_node", ["make_nodes", "start_container"]),
        ("container-stopped", "container_stopped", ["start_container"]),
    ],
)
def test_a_fault_is_healed_by_its_cheapest_steps(repaired, fault, cause, taken):
    lab("break", fault)
    before = pid_of_init()

    run = repaired.run(RECOVER)

    assert run.status == 0
    assert cause in causes(run)
    assert steps(run) == taken
    assert on(NODE, CU_INIT).strip() == "0"
    if "hot_plug" in taken:
        assert pid_of_init() == before


def test_a_second_run_changes_nothing(repaired):
    run = repaired.run(RECOVER)

    assert (run.status, steps(run), run.recovery["changed"]) == (0, [], {})


def test_without_hot_plug_the_container_is_restarted(repaired):
    lab("break", "uvm-rule-missing")
    before = pid_of_init()

    run = repaired.run(RECOVER, *NO_HOT_PLUG)

    assert (run.status, steps(run)) == (0, ["fix_config", "restart_container"])
    assert pid_of_init() != before


def test_a_repair_that_proxmox_rewrites_stays_a_repair(repaired):
    lab("break", "ignored-line")
    assert repaired.run(RECOVER).status == 0
    on(HOST, "pct set 200 --swap 513")
    rewritten = on(HOST, f"grep ^lxc {CONF}")

    lab("break", "container-stopped")
    run = repaired.run(RECOVER)

    assert (run.status, steps(run)) == (0, ["start_container"])
    assert on(HOST, f"grep ^lxc {CONF}") == rewritten


def test_a_campaign_stands_against_a_restart(repaired):
    lab("break", "uvm-rule-missing")
    on(NODE, "systemd-run --unit bench-run-lab-small.service --service-type exec sleep 600")

    run = repaired.run(RECOVER, *NO_HOT_PLUG)

    assert run.status != 0
    assert "the campaign bench-run-lab-small.service in container 200" in run.words
    assert "set pve_lxc_force: true" in run.words
    on(NODE, "systemctl stop bench-run-lab-small")
    assert repaired.run(RECOVER, *NO_HOT_PLUG).status == 0


def test_anothers_process_on_a_gpu_stands_against_a_restart(repaired):
    lab("break", "uvm-rule-missing")
    on(NODE, "systemd-run --unit notebook.service --service-type exec sh -c 'exec sleep 600 </dev/nvidia0'")

    run = repaired.run(RECOVER, *NO_HOT_PLUG)

    assert run.status != 0
    assert "sleep (pid" in run.words
    assert "container 200, notebook.service" in run.words
    assert repaired.run(RECOVER, *NO_HOT_PLUG, "-e", "pve_lxc_force=true").status == 0


def test_consent_for_a_restart_is_asked_for_by_its_variable(repaired):
    lab("break", "uvm-rule-missing")

    run = repaired.run(RECOVER, *NO_HOT_PLUG, "-e", "restart_allowed=false")

    assert run.status != 0
    assert "set pve_lxc_restart_allowed: true. Its file is repaired already" in run.words
    assert repaired.run(RECOVER).status == 0


def test_a_container_that_would_not_start_again_is_not_stopped(repaired):
    lab("break", "uvm-rule-missing")
    # At the top: earlier faults left snapshots, and a line at the end would be one of theirs.
    on(HOST, f"sed -i '1i dev5: /dev/nope,mode=0666' {CONF}")
    before = pid_of_init()

    run = repaired.run(RECOVER, *NO_HOT_PLUG)

    assert run.status != 0
    assert "dev5 of ct200 names /dev/nope, which pve does not have" in run.words
    assert steps(run) == ["fix_config"]
    assert pid_of_init() == before
    on(HOST, f"sed -i '/^dev5/d' {CONF}")
    assert repaired.run(RECOVER).status == 0


def test_a_locked_container_is_left_alone(repaired):
    lab("break", "locked-container")
    before = on(HOST, f"sha1sum {CONF}")

    run = repaired.run(RECOVER)

    assert run.status != 0
    assert "locked (backup)" in run.words
    assert on(HOST, f"sha1sum {CONF}") == before
    on(HOST, "pct unlock 200")


def test_a_regular_file_in_a_nodes_place_goes_only_when_allowed(repaired):
    lab("break", "regular-file-for-node")

    run = repaired.run(RECOVER)
    assert run.status != 0
    assert "host_node_not_a_device" in causes(run)
    assert on(HOST, "stat -c %F /dev/nvidia-uvm").startswith("regular")

    assert repaired.run(RECOVER, "-e", "pve_lxc_replace_files=true").status == 0
    assert on(NODE, CU_INIT).strip() == "0"


def test_with_the_boot_unit_a_moved_major_needs_no_repair(repaired):
    assert repaired.run(RECOVER, "-e", "pve_lxc_boot_unit_enabled=true").status == 0

    lab("break", "uvm-major-moved")

    assert on(NODE, CU_INIT).strip() == "0"
    journal = on(HOST, "journalctl -b -o cat -u recover-and-bench-devices")
    assert "which was nvidia-uvm's by our records" in journal
    run = repaired.run(RECOVER, "-e", "pve_lxc_boot_unit_enabled=true")
    assert (run.status, steps(run), run.recovery["changed"]) == (0, [], {})


def test_declared_settings_of_the_gpus_come_back_after_a_reboot(repaired, tmp_path):
    """Declared for the host, since it is the host's GPUs that are set."""
    declared = {"persistence": True, "power_limit_w": 450}
    hosts = lab_inventory(tmp_path / "hosts.yml", lambda host, _: host.update(gpu_state_declared=declared))
    query = "nvidia-smi --query-gpu=persistence_mode,power.limit --format=csv,noheader"
    run = repaired.run(RECOVER, inventory=hosts)
    assert (run.status, set(on(HOST, query).splitlines())) == (0, {"Enabled, 450.00 W"})
    lab("reboot-host", HOST)
    forgotten = on(HOST, query)
    assert "450" not in forgotten

    check = repaired.run(RECOVER, "--check", "--diff", inventory=hosts)
    assert "+ power limit: 450 W" in check.words
    assert on(HOST, query) == forgotten

    assert "power limit 450 W (was 600 W) on GPU 0-1" in repaired.run(RECOVER, inventory=hosts).words
    assert set(on(HOST, query).splitlines()) == {"Enabled, 450.00 W"}
    assert repaired.run(RECOVER, inventory=hosts).recovery["changed"] == {}


def test_a_host_reboot_happens_only_with_its_own_consent(repaired, tmp_path):
    """No fault of the lab needs one, so the cause is made up; the reboot is real."""
    playbook = tmp_path / "reboot.yml"
    cause = {
        "name": "gpu_fell_off_bus",
        "severity": "repairable",
        "repair": "reboot_host",
        "sentence": "x",
        "proof": {},
    }
    tasks = [
        {"ansible.builtin.include_role": {"name": "gpu_probe"}},
        {
            "ansible.builtin.set_fact": {
                "gpu_probe_diagnosis": "{{ gpu_probe_diagnosis | combine(made_up) }}",
            },
            "vars": {"made_up": {"verdict": "repairable", "causes": [cause]}},
        },
        {"ansible.builtin.include_role": {"name": "pve_lxc"}},
    ]
    playbook.write_text(
        json.dumps([{"name": "Repair | x", "hosts": "nodes", "gather_facts": False, "tasks": tasks}])
    )
    (tmp_path / "group_vars").symlink_to(PROJECT / "group_vars")
    before = on(HOST, "cat /proc/sys/kernel/random/boot_id")

    refused = repaired.run(str(playbook))
    assert "set pve_lxc_host_reboot_allowed: true" in refused.words
    assert on(HOST, "cat /proc/sys/kernel/random/boot_id") == before

    run = repaired.run(str(playbook), "-e", "host_reboot_allowed=true")
    assert (run.status, steps(run)) == (0, ["reboot_host"])
    assert on(HOST, "cat /proc/sys/kernel/random/boot_id") != before
