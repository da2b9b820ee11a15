"""The controller's part: what goes into a wheelhouse, and what is said when it can't be built."""

import json
import os
import subprocess
import sys
import tarfile

import pytest

from .conftest import ROLE, wheelhouse_program

PROGRAM = ROLE / "files/wheelhouse.py"


def test_a_wheelhouse_holds_the_pinned_wheels_pip_and_the_pins(build, requirements):
    answer = build(requirements("alpha==1.0  # a comment", "", "# another"))

    with tarfile.open(answer["archive"]) as archive:
        names = archive.getnames()
        pins = archive.extractfile("requirements.txt").read()
    assert answer["wheels"] == ["alpha-1.0-py3-none-any.whl"]
    assert pins == b"alpha==1.0\n"
    assert any(name.startswith("wheels/pip-") for name in names)


def test_a_second_call_only_reads_the_cache_and_needs_no_index(build, requirements, monkeypatch):
    first = build(requirements("alpha==1.0"))
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")

    second = build(requirements("alpha==1.0"))

    assert first["built"]
    assert not second["built"]
    assert second["sha256"] == first["sha256"]


def test_a_damaged_cache_is_built_again(build, requirements):
    first = build(requirements("alpha==1.0"))
    os.truncate(first["archive"], 100)

    assert build(requirements("alpha==1.0"))["built"]


def test_two_calls_at_once_build_once(offline, requirements, tmp_path):
    path = requirements("alpha==1.0")
    pip = (offline / "PIP").read_text()
    code = (
        f"import runpy, sys; m = runpy.run_path({str(PROGRAM)!r}); m['main'].__globals__['PIP'] = {pip!r}; "
    )
    code += "sys.exit(m['main'](sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--requirements", str(path), "--cache", str(tmp_path / "cache")]
    command += ["--python", "3.11", "--machine", "x86_64", "--glibc", "2.36"]

    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [json.loads(process.communicate()[0]) for process in running]

    assert sorted(answer["built"] for answer in answers) == [False, True]
    assert answers[0]["sha256"] == answers[1]["sha256"]


@pytest.mark.parametrize("line", ["alpha", "alpha>=1", "alpha~=1.0", "git+https://host/alpha"])
def test_a_line_without_a_pin_is_refused_with_its_number(requirements, line):
    path = requirements("beta==1.0", line)

    with pytest.raises(wheelhouse_program.WheelhouseError, match=f"line 2: `{line[:4]}.*is not pinned"):
        wheelhouse_program.read_requirements(path)


def test_hashes_extras_and_markers_do_not_hide_a_pin(requirements):
    path = requirements(
        "Alpha[fast]==1.0 ; python_version > '3.8' \\", "    --hash=sha256:aa", "--no-binary=x"
    )

    read = wheelhouse_program.read_requirements(path)

    assert read.pins == {"alpha": "1.0"}
    assert read.lines == ["Alpha[fast]==1.0 ; python_version > '3.8'"]
    assert read.options == ["--no-binary=x"]


def test_a_dependency_without_a_pin_is_named(build, requirements):
    with pytest.raises(
        wheelhouse_program.WheelhouseError, match=r"does not pin everything.*add: alpha==2\.0"
    ):
        build(requirements("needy==1.0"))


def test_a_package_without_a_wheel_for_the_nodes_python_is_named(build, requirements):
    with pytest.raises(
        wheelhouse_program.WheelhouseError,
        match=r"no wheel of native==1\.0 for CPython 3\.13 on x86_64 with glibc",
    ):
        build(requirements("native==1.0"), python="3.13")


def test_a_wheel_for_an_older_c_library_is_found(build, requirements):
    assert build(requirements("native==1.0"), python="3.11")["wheels"] == [
        "native-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    ]


def test_a_node_with_another_c_library_is_refused(build, requirements):
    with pytest.raises(
        wheelhouse_program.WheelhouseError, match="is not glibc: wheels are fetched for glibc"
    ):
        build(requirements("alpha==1.0"), glibc="")


def test_no_network_is_said_as_such():
    target = wheelhouse_program.Target("3.11", "x86_64", "2.36")
    pip_said = (
        "WARNING: Retrying after connection broken by 'NewConnectionError(...)': /simple/alpha/\n"
        "ERROR: Could not find a version that satisfies the requirement alpha==1.0 (from versions: none)\n"
        "ERROR: No matching distribution found for alpha==1.0\n"
    )

    message = wheelhouse_program.explain_pip(pip_said, target)

    assert (
        "index can't be reached from the controller, and alpha==1.0 isn't in its wheelhouse cache" in message
    )


def test_a_missing_requirements_file_is_one_line_of_json(tmp_path):
    command = [sys.executable, str(PROGRAM), "--requirements", "/no/such", "--cache", str(tmp_path)]
    done = subprocess.run(
        [*command, "--python", "3.11", "--machine", "x86_64", "--glibc", "2.36"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "error": "the requirements file /no/such can't be read: No such file or directory"
    }
