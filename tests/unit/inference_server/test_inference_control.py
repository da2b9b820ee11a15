"""The control program over a real socket."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest


def test_show_gives_the_units_state_with_numbers_as_numbers(machine):
    machine.run_unit("tp1-auto")
    machine.processes(42, 43)

    assert machine.ask({"verb": "show", "configuration": "tp1-auto"}) == {
        "ok": True,
        "configuration": "tp1-auto",
        "unit": "inference-tp1-auto.service",
        "ActiveState": "active",
        "SubState": "running",
        "Result": "success",
        "ExecMainCode": 0,
        "ExecMainStatus": 0,
        "MainPID": 42,
        "InvocationID": "abc",
        "NRestarts": 0,
        "ExecMainStartTimestampMonotonic": 5000000,
        "ControlGroup": "/system.slice/inference-tp1-auto.service",
        "processes": 2,
    }


def test_start_forgets_an_earlier_failure_and_starts(machine):
    answer = machine.ask({"verb": "start", "configuration": "tp1-auto"})

    assert answer["ok"]
    assert answer["ActiveState"] == "active"
    orders = [call for call in machine.calls if not call.startswith("show")]
    assert orders == [
        "reset-failed -- inference-tp1-auto.service",
        "--no-ask-password start -- inference-tp1-auto.service",
    ]


def test_a_server_beside_another_one_is_not_started(machine):
    machine.run_unit("tp1-ngram", ActiveState="deactivating")

    answer = machine.ask({"verb": "start", "configuration": "tp1-auto"})

    assert answer == {
        "ok": False,
        "error": (
            "inference-tp1-auto.service is not started:"
            " inference-tp1-ngram.service is still deactivating; stop it first"
        ),
    }
    assert not any(" start " in call for call in machine.calls)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("203", "its program cannot be executed: is the engine installed?"),
        ("217", "its user does not exist"),
        ("226", "set inference_server_hardening_enabled to false"),
        ("1", "Job failed."),
    ],
)
def test_a_start_that_systemd_refuses_says_why(machine, status, why):
    machine.write({"units": {}, "refuses": {"Result": "exit-code", "ExecMainStatus": status}})

    answer = machine.ask({"verb": "start", "configuration": "tp1-auto"})

    assert answer["error"].startswith(
        f"inference-tp1-auto.service did not start (result exit-code, status {status}): "
    )
    assert why in answer["error"]


def test_stop_waits_until_no_process_is_left(machine):
    machine.run_unit("tp1-auto")
    machine.processes(42)
    threading.Timer(0.3, machine.processes).start()

    answer = machine.ask({"verb": "stop", "configuration": "tp1-auto"})

    assert answer["ok"]
    assert (answer["ActiveState"], answer["processes"]) == ("inactive", 0)


def test_processes_that_outlive_a_stop_are_an_error(machine, control, monkeypatch):
    monkeypatch.setattr(control, "EMPTY_S", 0.1)
    machine.run_unit("tp1-auto")
    machine.processes(42, 43)

    answer = machine.ask({"verb": "stop", "configuration": "tp1-auto"})

    assert answer == {
        "ok": False,
        "error": "inference-tp1-auto.service is stopped, but 2 of its processes did not end: 42, 43",
    }


def test_a_stop_that_hangs_ends_with_an_error(machine, control, monkeypatch):
    monkeypatch.setattr(control, "STOP_GRACE_S", 0.1)
    machine.run_unit("tp1-auto", TimeoutStopUSec="100ms")
    state = json.loads((machine.folder / "bin/state.json").read_text())
    machine.write(state | {"stop_s": 5})

    answer = machine.ask({"verb": "stop", "configuration": "tp1-auto"})

    assert "did not end within 0 s" in answer["error"]


def test_evidence_has_the_runs_journal_and_the_kernels_lines_since_its_start(machine):
    machine.run_unit("tp1-auto", ActiveState="failed", Result="signal", ExecMainStatus="9", ControlGroup="")
    lines = [f"line {number}" for number in range(300)]
    (machine.folder / "bin/journal").write_bytes(
        "\n".join(lines).encode() + b"\nbad \xff byte\n" + b"x" * 5000
    )
    (machine.folder / "bin/dmesg.out").write_text(
        "<6>[    1.000000] NVRM: Xid (PCI:0000:01:00): 79, before\n"
        "<6>[    6.500000] NVRM: Xid (PCI:0000:01:00): 13, after\n"
        "<6>[    7.000000] eth0: link up\n"
        "<3>[    8.000000] Out of memory: Killed process 42 (python)\n"
    )

    answer = machine.ask({"verb": "evidence", "configuration": "tp1-auto"})

    assert (answer["Result"], answer["ExecMainStatus"]) == ("signal", 9)
    assert len(answer["journal"]) == 200
    assert answer["journal"][-2] == "bad \ufffd byte"
    assert len(answer["journal"][-1]) == 2000
    assert [line[18:] for line in answer["kernel"]] == [
        "NVRM: Xid (PCI:0000:01:00): 13, after",
        "Out of memory: Killed process 42 (python)",
    ]
    assert answer["notes"] == []


def test_log_has_the_newest_lines_of_the_run_that_is_on(machine):
    machine.run_unit("tp1-auto")
    bar = "Loading shards:  50% Completed | 1/2\rLoading shards: 100% Completed | 2/2"
    (machine.folder / "bin/journal").write_text("\n".join([*(f"line {n}" for n in range(60)), bar]))

    answer = machine.ask({"verb": "log", "configuration": "tp1-auto"})

    assert (answer["ActiveState"], len(answer["journal"])) == ("active", 40)
    assert answer["journal"][-1] == "Loading shards: 100% Completed | 2/2"
    assert "kernel" not in answer


def write_runs(machine, boot: str) -> None:
    records = [
        {"INVOCATION_ID": "def", "__MONOTONIC_TIMESTAMP": "4000000", "_BOOT_ID": boot},
        {"_SYSTEMD_INVOCATION_ID": "def", "__MONOTONIC_TIMESTAMP": "9000000", "_BOOT_ID": boot},
    ]
    (machine.folder / "bin/journal.json").write_text("\n".join(json.dumps(each) for each in records))


def test_evidence_of_a_server_that_ended_with_status_0_comes_from_the_journal(machine):
    # systemd has unloaded the unit by then: no invocation, no start time.
    write_runs(machine, "this boot")
    (machine.folder / "bin/journal").write_text("the last words\n")
    (machine.folder / "bin/dmesg.out").write_text("[    3.500000] NVRM: Xid\n[    2.000000] NVRM: Xid\n")

    answer = machine.ask({"verb": "evidence", "configuration": "tp1-auto"})

    assert answer["InvocationID"] == "def"
    assert answer["journal"] == ["the last words"]
    assert answer["kernel"] == ["[    3.500000] NVRM: Xid"]


def test_a_run_before_the_last_boot_is_no_evidence(machine):
    write_runs(machine, "an earlier boot")

    answer = machine.ask({"verb": "evidence", "configuration": "tp1-auto"})

    assert (answer["InvocationID"], answer["journal"]) == ("", [])


def test_evidence_of_a_unit_that_never_ran_is_empty_and_says_what_it_cannot_read(machine):
    answer = machine.ask({"verb": "evidence", "configuration": "tp1-auto"})

    assert (answer["journal"], answer["kernel"]) == ([], [])
    assert answer["notes"] == ["dmesg: dmesg: read kernel buffer failed: Operation not permitted"]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (b"junk\n", "the request is not a JSON line: "),
        (b"\xff\n", "the request is not a JSON line: "),
        (b"\n", "the request is not a JSON line: "),
        ([], "a request is "),
        ({"verb": "show"}, "a request is "),
        ({"verb": "show", "configuration": "tp1-auto", "more": 1}, "a request is "),
        ({"verb": "restart", "configuration": "tp1-auto"}, "unknown verb 'restart'; known: start, stop,"),
        ({"verb": ["show"], "configuration": "tp1-auto"}, "unknown verb ['show']"),
        ({"verb": "show", "configuration": "../tp1-auto"}, "a configuration's name has letters"),
        ({"verb": "show", "configuration": "--property=Id"}, "a configuration's name has letters"),
        ({"verb": "show", "configuration": "tp1-auto\n"}, "a configuration's name has letters"),
        ({"verb": "show", "configuration": 1}, "a configuration's name has letters"),
        (
            {"verb": "show", "configuration": "sshd"},
            "no configuration sshd is deployed here; known: tp1-auto, tp1-ngram",
        ),
        (b"x" * 5000 + b"\n", "a request is at most 4096 bytes"),
    ],
)
def test_a_request_that_is_not_one_is_refused_and_touches_nothing(machine, request_, error):
    answer = machine.ask(request_)

    assert not answer["ok"]
    assert answer["error"].startswith(error)
    assert machine.calls == []


@pytest.mark.parametrize(
    "content", ["", "[]", '{"unit": "sshd.service"}', "{}"], ids=["torn", "list", "another unit", "no unit"]
)
def test_a_description_that_does_not_name_its_unit_is_refused(machine, content):
    (machine.folder / "descriptions/tp1-auto.json").write_text(content)

    answer = machine.ask({"verb": "start", "configuration": "tp1-auto"})

    assert "tp1-auto.json" in answer["error"]
    assert machine.calls == []


def test_a_client_that_says_nothing_is_answered_after_the_time_limit(machine):
    assert machine.ask(b'{"verb"', limit_s=0.2)["error"] == "no whole request within 0 s"


def test_a_request_without_a_line_end_is_served_when_the_client_has_finished(machine):
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b'{"verb": "show", "configuration": "tp1-auto"}')
        here.shutdown(socket.SHUT_WR)

        assert machine.control.handle(there, machine.system)["ok"]


@pytest.mark.parametrize(
    ("span", "expected"),
    [("30s", 30), ("1min 30s", 90), ("500ms", 0.5), ("2h", 7200), ("infinity", 90), ("", 90)],
)
def test_time_spans_of_systemd_are_read(control, span, expected):
    assert control.seconds(span) == expected


def test_the_program_serves_the_socket_that_is_its_standard_input(machine, role):
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b'{"verb": "show", "configuration": "nope"}\n')
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-B",
                str(role / "files/inference_control.py"),
                "--descriptions",
                str(machine.folder / "descriptions"),
            ],
            stdin=there,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            env={"PATH": os.environ["PATH"]},
        )
        answer = json.loads(here.recv(4096))

    assert done.returncode == 0
    assert answer["error"] == "no configuration nope is deployed here; known: tp1-auto, tp1-ngram"
    assert done.stderr == f"refused: {answer['error']}\n"
