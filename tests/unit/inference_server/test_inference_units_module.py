"""The module that writes units: check mode predicts, the real run agrees, a second run changes nothing."""

import json
from pathlib import Path

import pytest
from ansible.module_utils.inference_server import deployment
from ansible.module_utils.inference_server.units import MARKER
from ansible.module_utils.testing import patch_module_args


@pytest.fixture(scope="module")
def module(load_file):
    return load_file("library/inference_server_units.py")


@pytest.fixture
def node(module, tmp_path, capsys):
    return Node(module, tmp_path, capsys)


UNIT = f"# {MARKER}\n[Service]\nExecStart=/bin/true --a {{}}\n"


class Node:
    def __init__(self, module, folder: Path, capsys) -> None:
        self.module, self.folder, self.capsys = module, folder, capsys
        self.units, self.descriptions = folder / "units", folder / "descriptions"

    def files(self, **units: str) -> list[dict]:
        files = [{"path": f"{self.units}/inference-control.socket", "content": SOCKET, "mode": "0644"}]
        files += [
            {"path": f"{self.units}/inference-control@.service", "content": UNIT.format(0), "mode": "0644"}
        ]
        for name, value in units.items():
            files += [
                {
                    "path": f"{self.units}/inference-{name}.service",
                    "content": UNIT.format(value),
                    "mode": "0644",
                },
                {"path": f"{self.descriptions}/{name}.json", "content": f'"{value}"\n', "mode": "0644"},
            ]
        return files

    def run(self, *, check: bool = False, keep=(), files=None, **units: str) -> dict:
        arguments = {
            "node": "ct200",
            "files": files or self.files(**units),
            "configurations": list(units),
            "keep": list(keep),
            "unit_dir": str(self.units),
            "description_dir": str(self.descriptions),
            "engines": {"e": {"build": "e 1.0", "configurations": list(units)}},
            "_ansible_check_mode": check,
            "_ansible_diff": True,
            "_ansible_remote_tmp": str(self.folder),
        }
        with patch_module_args(arguments), pytest.raises(SystemExit):
            self.module.main()
        return json.loads(self.capsys.readouterr().out.splitlines()[-1])

    def names(self) -> list[str]:
        return sorted(
            path.name for path in self.folder.glob("*/*") if path.parent in (self.units, self.descriptions)
        )


SOCKET = f"# {MARKER}\n[Socket]\nListenStream=/run/x.sock\nAccept=yes\n"


def test_check_mode_predicts_what_the_first_run_writes_and_the_second_run_changes_nothing(node):
    predicted = node.run(check=True, a="1", b="2")
    assert node.names() == []

    done = node.run(a="1", b="2")
    again = node.run(a="1", b="2")

    assert predicted["changed"]
    assert done["changed"]
    assert predicted["diff"] == done["diff"]
    assert not again["changed"]
    assert again["diff"] == []
    assert node.names() == sorted(
        [
            "a.json",
            "b.json",
            "inference-a.service",
            "inference-b.service",
            "inference-control.socket",
            "inference-control@.service",
        ]
    )


def test_the_summary_is_one_line_of_what_was_done(node):
    assert node.run(check=True, a="1")["summary"] == (
        "1 configuration: 1 would be written (a); control would be written; e 1.0"
    )
    assert node.run(a="1")["summary"] == "1 configuration: 1 written (a); control written; e 1.0"
    assert node.run(a="1", b="1")["summary"] == "2 configurations: 1 written (b); 1 unchanged; e 1.0"
    assert node.run(b="1")["summary"] == "1 configuration: 1 unchanged; 1 removed (a); e 1.0"
    assert node.run(b="1")["summary"] == "1 configuration: 1 unchanged; e 1.0"


def test_the_report_names_engine_and_build(node):
    assert node.run(a="1")["recovery"] == {"engines": {"e": {"build": "e 1.0", "configurations": ["a"]}}}


def test_a_configuration_that_is_gone_takes_its_files_with_it(node):
    node.run(a="1", b="2")

    predicted = node.run(check=True, a="1")
    done = node.run(a="1")

    assert predicted["diff"] == done["diff"]
    assert {Path(each["before_header"].split()[0]).name for each in done["diff"]} == {
        "b.json",
        "inference-b.service",
    }
    assert "b.json" not in node.names()
    assert "inference-b.service" not in node.names()


def test_a_unit_that_somebody_else_wrote_is_not_removed(node):
    node.run(a="1")
    (node.units / "inference-mine.service").write_text("[Service]\nExecStart=/bin/true\n")

    assert not node.run(a="1")["changed"]
    assert "inference-mine.service" in node.names()


def test_what_cannot_be_described_yet_is_left_as_it_is(node):
    node.run(a="1", b="2")

    result = node.run(check=True, keep=["b"], a="1")

    assert not result["changed"]
    assert "1 not compared, what they need is not there yet (b)" in result["summary"]


def test_a_mode_that_somebody_changed_is_put_right(node):
    node.run(a="1")
    (node.units / "inference-a.service").chmod(0o600)

    assert node.run(a="1")["changed"]
    assert (node.units / "inference-a.service").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("check", [True, False], ids=["check mode", "real run"])
def test_a_unit_that_systemd_refuses_is_not_written(node, check):
    files = node.files(a="1")
    files[2]["content"] = "[Service]\nExecStart=/bin/true\nRestart=sometimes\n"

    result = node.run(check=check, files=files, a="1")

    assert result["failed"]
    assert result["msg"].startswith("ct200: systemd refuses the units, none was written: ")
    assert "sometimes" in result["msg"]
    assert node.names() == []


def test_a_program_that_is_not_installed_is_refused_but_not_in_a_rehearsal(node):
    files = node.files(a="1")
    files[2]["content"] = "[Service]\nExecStart=/opt/nothing/bin/python\n"

    assert node.run(check=True, files=files, a="1")["changed"]
    assert "/opt/nothing/bin/python is not executable" in node.run(files=files, a="1")["msg"]


def state_text(**units: str) -> str:
    return "\n\n".join(
        f"Id={name.replace('_', '-')}.service\nActiveState={active}\n"
        "UnitFileState=static\nNeedDaemonReload=no"
        for name, active in units.items()
    )


def test_the_state_of_all_units_is_read_in_one_call():
    calls = []

    def systemctl(arguments):
        calls.append(arguments)
        text = state_text(inference_a="active", inference_b="inactive")
        return text.replace("Reload=no", "Reload=yes", 1) + "\n"

    state = deployment.read_state(["inference-a.service", "inference-b.service"], systemctl)

    assert len(calls) == 1
    assert (state.runs("inference-a.service"), state.runs("inference-b.service")) == (True, False)
    assert state.stale == ("inference-a.service",)


def test_an_operator_is_told_of_units_that_run_on():
    state = deployment.State({"inference-a.service": "active", "inference-b.service": "active"})
    changes = [
        deployment.Change(Path("/u/inference-a.service"), "old", "new"),
        deployment.Change(Path("/u/inference-c.service"), "old", "new"),
    ]

    assert deployment.tell("ct200", changes, ["b"], state) == [
        "ct200: inference-a.service is running with its old unit file; its next start uses the new one",
        (
            "ct200: configuration b is no longer wanted, but its unit is running, so it stays:"
            " stop it (systemctl stop inference-b.service) and deploy again"
        ),
    ]


def test_lines_about_other_units_are_no_fault_of_ours():
    lines = [
        "/lib/systemd/system/x.service:3: Unknown key",
        "inference-a.service: Command /x is not executable",
    ]

    assert deployment.find_faults(lines, ["inference-a.service"]) == lines[1:]
