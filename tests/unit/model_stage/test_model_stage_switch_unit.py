"""What the role leaves on the node for the switch: with ansible-playbook, and as systemd reads it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest
import yaml

from .conftest import REPO, ROLE, ROOT, Cache, model_files, stager
from .small_tmpfs import mounted

ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
TEMPLATE = ROLE / "templates/model-stage-switch@.service.j2"


def unit(*, grow=False, network=False):
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)  # noqa: S701 - a unit file
    environment.filters.update(comment=lambda text: f"# {text}", bool=bool)
    return environment.from_string(TEMPLATE.read_text()).render(
        ansible_managed="managed",
        model_stage_program_dir="/opt",
        model_stage_plan_dir="/etc/model-stage",
        model_stage_grow_allowed=grow,
        __model_stage_python="/usr/bin/python3",
        __model_stage_writable=["-/dev/shm", "-/var/lib/model-stager"],
        __model_stage_plan={"network": network},
    )


@pytest.mark.parametrize("grow", [False, True])
@pytest.mark.parametrize("network", [False, True])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path, grow, network):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / "model-stage-switch@0.service"
    path.write_text(unit(grow=grow, network=network))

    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)

    assert "model-stage-switch" not in done.stderr, done.stderr


def test_it_may_mount_only_where_growing_is_allowed():
    assert "CAP_SYS_ADMIN" not in unit()
    assert "@mount" not in unit()
    assert "CAP_SYS_ADMIN" in unit(grow=True)
    assert "PrivateNetwork=yes" in unit()
    assert "PrivateNetwork" not in unit(network=True)


class Play:
    """The role, run by ansible-playbook on this machine, in scratch folders only; says how much changed."""

    def __init__(self, tmp_path, shm):
        self.folder, self.shm = tmp_path, shm
        models = []
        for seed, name in enumerate("abc"):
            cache = Cache(tmp_path / f"hub-{name}").add(model_files(size=500_000, seed=seed))
            sources = [{"kind": "hf_cache", "path": str(cache.path)}]
            models.append({"name": name, "repo": REPO, "sources": sources})
        self.vars = {
            "model_stage_models": models,
            "model_stage_sets": [["a"], ["a", "b"], ["c"]],
            "model_stage_root": str(shm),
            "model_stage_switch_allowed": True,
            "model_stage_user": "",
            "model_stage_launcher": "process",
            "model_stage_program_dir": str(tmp_path / "program"),
            "model_stage_state_dir": str(tmp_path / "state"),
            "model_stage_plan_dir": str(tmp_path / "etc"),
            "ansible_python_interpreter": sys.executable,
        }

    def run(self, *options, **changed):
        play = [
            {
                "name": "Stage | the models",
                "hosts": "localhost",
                "connection": "local",
                "gather_facts": False,
                "vars": {**self.vars, **changed},
                "roles": [{"role": str(ROLE)}],
            }
        ]
        path = self.folder / "play.yml"
        path.write_text(yaml.safe_dump(play))
        done = subprocess.run(
            [ANSIBLE, "-i", "localhost,", path, *options],
            cwd=ROOT,
            env={
                "PATH": f"{ANSIBLE.parent}:/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME": str(self.folder),
                "LC_ALL": "C.UTF-8",
                "ANSIBLE_STDOUT_CALLBACK": "default",
                "ANSIBLE_NOCOLOR": "1",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return int(re.search(r"changed=(\d+)", done.stdout).group(1))


@pytest.fixture
def role(tmp_path):
    with mounted(tmp_path / "small", 4) as shm:
        yield Play(tmp_path, shm)


def fewer(role):
    """A plan in which nothing waits; what the other one had in memory may go."""
    models = role.vars["model_stage_models"][:2]
    return {"model_stage_models": models, "model_stage_sets": [], "model_stage_remove_allowed": True}


def switched(role):
    plan, state = role.folder / "etc/plan.json", role.folder / "switch.json"
    return stager("switch", "--plan", plan, "--set", 2, "--state", state)


def test_the_role_leaves_a_plan_that_the_node_can_follow_and_takes_it_away(role):
    first = role.run()
    done = switched(role)
    there = (role.folder / "etc/plan.json").is_file()
    role.run(**fewer(role))

    assert first >= 2
    assert done.returncode == 0, done.stderr
    assert "removed: a (1.5 MB" in done.stdout
    assert there
    assert not (role.folder / "etc/plan.json").exists()


@pytest.mark.long
def test_a_second_run_changes_nothing_whatever_is_in_memory(role):
    predicted = role.run("--check")
    untouched = not (role.folder / "etc").exists()
    role.run()
    second = role.run()
    switched(role)
    third = role.run()

    assert untouched
    assert predicted >= 1
    assert second == 0
    assert third == 0, "the campaign may be in its second half: what is whole stays"
    assert (role.shm / "c").is_dir()
    assert role.run(**fewer(role)) >= 1
    assert role.run(**fewer(role)) == 0
