"""SIGUSR1, the polite question before a planned reboot: no cell is cut short, no new one is begun."""

import signal
import time

import pytest


@pytest.fixture
def asked(bench):
    """Run until `phase` is seen, ask to stop, and wait for the end; returns the exit status."""

    def ask(phase):
        process = bench.start_process()
        try:
            end = time.monotonic() + 20
            while True:
                status = bench.status() if bench.folder.status.exists() else {}
                if (status.get("current") or {}).get("phase") == phase:
                    break
                assert process.poll() is None, process.communicate()[0]
                assert time.monotonic() < end, f"never {phase}: {status}"
                time.sleep(0.02)
            process.send_signal(signal.SIGUSR1)
            process.communicate(timeout=20)
        finally:
            process.kill()
            process.communicate()
        return process.returncode

    return ask


def test_the_running_cell_ends_and_the_next_one_does_not_begin(bench, asked):
    bench.simulate("tp1-auto", {"chunk_s": 0.05})
    returncode = asked("measuring")

    assert returncode == 4
    assert [(event["event"], event.get("status")) for event in bench.events() if event.get("cell")] == [
        ("cell_started", None),
        ("cell_ended", "ok"),
    ]
    assert bench.status()["state"] == "stopped"
    assert bench.events()[-1]["detail"]["state"] == "stopped"
    assert "server_stopped" in [event["event"] for event in bench.events()]
    bench.check_schemas()


def test_a_server_that_still_loads_is_not_waited_for(bench, asked):
    bench.simulate("tp1-auto", {"load_s": 15.0})
    began_s = time.monotonic()
    returncode = asked("server_starting")

    assert returncode == 4
    assert time.monotonic() - began_s < 12
    assert not [event for event in bench.events() if event.get("cell")]
    assert bench.status()["state"] == "stopped"


def test_the_next_run_goes_on_where_it_stopped(bench, asked):
    bench.simulate("tp1-auto", {"chunk_s": 0.05})
    asked("measuring")
    bench.simulate("tp1-auto")
    outcome = bench.run()

    assert outcome.state == "finished"
    ended = [event["cell"] for event in bench.events() if event["event"] == "cell_ended"]
    assert len(ended) == len(set(ended)) == 2
