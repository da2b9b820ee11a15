"""The node's part: check mode predicts, the real run agrees, a second run changes nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.node_python.interpreter import read_answer

from .conftest import action_plugin


@pytest.fixture
def house(houses):
    return houses["1.0"]


@pytest.fixture
def sources(tmp_path):
    """Pack a package of the project, as the action plugin does."""

    def pack(text):
        package = tmp_path / "src" / "ours"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(text)
        files = action_plugin.package_files([package])
        archive = tmp_path / "sources.tar"
        archive.write_bytes(action_plugin.pack(files))
        return {
            "packages_digest": action_plugin.packages_digest(files),
            "sources": {"path": str(archive), "sha256": action_plugin.file_sha256(archive)},
        }

    return pack


def python_says(venv, code):
    command = [f"{venv}/bin/python", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


def test_check_mode_predicts_then_the_run_agrees_and_a_second_one_finds_nothing(node, house, tmp_path):
    predicted = node(check=True, apply=True, wheelhouse=house)
    written = tree(tmp_path / "node")
    installed = node(apply=True, wheelhouse=house)
    second = node()

    assert predicted["environment_faults"] == ["it was not there yet"]
    assert not predicted["changed"]
    assert written == []
    assert installed["changed"]
    assert installed["environment_faults"] == second["environment_faults"] == []
    assert second["pins"] == ["alpha==1.0"]
    assert python_says(tmp_path / "node/try", "import alpha; print(alpha.VALUE)") == "1"


def test_an_edited_file_is_noticed_and_the_environment_made_anew(node, house, tmp_path):
    node(apply=True, wheelhouse=house)
    venv = tmp_path / "node/try"
    first = venv.resolve()
    next(venv.glob("lib/python*/site-packages/alpha.py")).write_text("VALUE = 'edited'\n")

    noticed = node()["environment_faults"]
    node(apply=True, wheelhouse=house)

    assert noticed == ["installed files have been changed"]
    assert venv.resolve() != first
    assert first.is_dir(), "a program that runs from it may go on"
    assert python_says(venv, "import alpha; print(alpha.VALUE)") == "1"


def test_byte_code_that_python_writes_is_no_change(node, house, tmp_path):
    node(apply=True, wheelhouse=house)
    python_says(tmp_path / "node/try", "import json, alpha, this")

    assert node()["environment_faults"] == []


def test_the_projects_packages_are_replaced_without_touching_the_environment(node, house, sources, tmp_path):
    venv = tmp_path / "node/try"
    node(apply=True, wheelhouse=house, **sources("VALUE = 'old'\n"))
    environment = venv.resolve()
    old = python_says(venv, "import ours; print(ours.VALUE, ours.__file__)").split()

    wanted = sources("VALUE = 'new'\n")
    difference = node(packages_digest=wanted["packages_digest"])
    after = node(apply=True, **wanted)
    new = python_says(venv, "import ours; print(ours.VALUE, ours.__file__)").split()

    assert difference["environment_faults"] == []
    assert difference["source_faults"] == ["the packages are not there or have changed"]
    assert after["source_faults"] == []
    assert venv.resolve() == environment
    assert (old[0], new[0]) == ("old", "new")
    assert Path(old[1]).is_file(), "a program that runs from the old files may go on"


def test_packages_that_are_no_longer_wanted_are_taken_out(node, house, sources, tmp_path):
    node(apply=True, wheelhouse=house, **sources("VALUE = 1\n"))

    noticed = node()["source_faults"]
    node(apply=True)

    assert noticed == ["packages that are no longer wanted are still in use"]
    with pytest.raises(subprocess.CalledProcessError):
        python_says(tmp_path / "node/try", "import ours")


def test_other_requirements_make_another_environment(node, houses, tmp_path):
    node(apply=True, wheelhouse=houses["1.0"])

    noticed = node(requirements_digest="b" * 64)["environment_faults"]
    node(apply=True, requirements_digest="b" * 64, wheelhouse=houses["2.0"])

    assert noticed == ["the requirements have changed"]
    assert python_says(tmp_path / "node/try", "import alpha; print(alpha.VALUE)") == "2"


def test_an_installation_that_fails_leaves_the_one_before_in_use(node, houses, tmp_path):
    node(apply=True, wheelhouse=houses["1.0"])
    before = tree(tmp_path / "node")
    archive = Path(shutil.copy(houses["2.0"]["path"], tmp_path))
    subprocess.run(["tar", "--delete", "-f", archive, "wheels/alpha-2.0-py3-none-any.whl"], check=True)
    digest = action_plugin.file_sha256(archive)

    failed = node(
        apply=True, requirements_digest="b" * 64, wheelhouse={"path": str(archive), "sha256": digest}
    )

    assert failed["failed"]
    assert "could not install the packages: ERROR: Could not find a version" in failed["msg"]
    assert tree(tmp_path / "node") == before
    assert python_says(tmp_path / "node/try", "import alpha; print(alpha.VALUE)") == "1"


def test_an_archive_that_did_not_arrive_whole_is_refused(node, house):
    failed = node(apply=True, wheelhouse={**house, "sha256": "0" * 64})

    assert f"arrived with sha256 {house['sha256']}, {'0' * 64} was sent" in failed["msg"]


def test_a_folder_of_somebody_else_is_left_alone(node, house, tmp_path):
    (tmp_path / "node/try").mkdir(parents=True)
    (tmp_path / "node/try/theirs").touch()

    failed = node(apply=True, wheelhouse=house)

    assert "exists and was not made by node_python" in failed["msg"]
    assert tree(tmp_path / "node") == ["try", "try/theirs"]


def test_a_disk_that_is_too_small_is_named_before_anything_is_made(node, tmp_path):
    archive = tmp_path / "large.tar"
    archive.touch()
    os.truncate(archive, 10**13)  # sparse

    failed = node(apply=True, wheelhouse={"path": str(archive), "sha256": "0" * 64})

    assert "MB free, " in failed["msg"]
    assert "needs about 40000000 MB: make room or set node_python_venv" in failed["msg"]
    assert tree(tmp_path / "node") == []


def test_a_missing_interpreter_is_named(node):
    assert node(interpreter="/no/python")["msg"] == "/no/python does not run: No such file or directory"


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"can_venv": False}, r"python3 \(Python 3\.11\) has no venv module: install it"),
        ({"implementation": "pypy"}, r"python3 is pypy; wheels are fetched for plain CPython"),
        ({"free_threaded": True}, r"python3 is free-threaded CPython"),
    ],
    ids=["no venv", "pypy", "free-threaded"],
)
def test_an_interpreter_that_will_not_do_is_refused(facts, message):
    plain = {"python": "3.11", "implementation": "cpython", "free_threaded": False, "can_venv": True}

    with pytest.raises(ValueError, match=message):
        read_answer("python3", 0, json.dumps({**plain, **facts}), "")


def test_an_environment_of_another_python_is_not_used(node, house, tmp_path):
    node(apply=True, wheelhouse=house)
    marker = (tmp_path / "node/try").resolve() / "node-python.json"
    marker.write_text(marker.read_text().replace(os.path.realpath(sys.executable), "/usr/bin/python3.0"))

    (fault,) = node()["environment_faults"]

    assert fault.startswith("its executable was /usr/bin/python3.0, the node's is")
