"""llama.cpp, the real server, killed while it generates: the cell has crashed, with what is left of it."""

import os
import signal
import threading
import time

import pytest

from tests.unit.bench_runner.conftest import SMALL_PLAN

pytest.importorskip("xllamacpp")


def test_killed_while_it_generates_it_has_crashed_with_evidence(bench):
    bench.llama("tp1-auto")
    points = {"points": [1500], "requests": 20, "prompt_tokens": 48}
    bench.plan(SMALL_PLAN, workloads={"code": points}, attempts=1)
    control = bench.start_control()

    def kill_when_it_is_measured():
        until = time.monotonic() + 60
        while time.monotonic() < until:
            current = bench.folder.status.exists() and bench.status()["current"]
            if current and current["phase"] == "measuring":
                break
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(control.units["tp1-auto"].process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_when_it_is_measured)
    killer.start()
    bench.run()
    killer.join()

    cell = bench.cell("tp1-auto.code.1500.r1")
    assert (cell.status, cell.reasons[0].code) == ("crashed", "server_crashed")
    assert cell.metrics is None
    assert cell.evidence["Result"] == "signal"
    assert cell.evidence["ExecMainStatus"] == signal.SIGKILL
    assert "llama_server: listening on" in "\n".join(cell.evidence["journal"])
    bench.check_schemas()
