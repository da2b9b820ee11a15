"""The runner killed at random moments: no ok cell is lost or measured twice, and none is false."""

import json
import random
import signal
import time

from bench_runner.records import read_requests

from tests.unit.bench_runner.conftest import SMALL_PLAN

KILLS = 5


def ok_cells(bench):
    """What the journal calls ok, with the digest of its file."""
    if not bench.folder.journal.exists():
        return {}
    events = [
        json.loads(line) for line in bench.folder.journal.read_bytes().splitlines() if line.endswith(b"}")
    ]
    ended = [event for event in events if event["event"] == "cell_ended" and event["status"] == "ok"]
    assert len({event["cell"] for event in ended}) == len(ended), "a cell that was ok was measured again"
    return {event["cell"]: event["sha256"] for event in ended}


def test_killed_at_any_moment_nothing_is_lost_and_nothing_is_false(bench):
    bench.plan(
        SMALL_PLAN,
        configurations=["tp1-auto", "tp1-spec"],
        workloads={"code": {"points": [8, 16, 24], "requests": 2}, "concurrency": {"points": [2]}},
    )
    bench.simulate("tp1-auto", {"chunk_s": 0.002})
    bench.simulate("tp1-spec", {"chunk_s": 0.002, "speculating": True, "tokens_per_chunk": 2})
    seed = random.randrange(10**6)  # noqa: S311 - moments, not secrets
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)  # noqa: S311 - moments, not secrets
    known: dict[str, str] = {}
    for _ in range(KILLS):
        process = bench.start_process()
        time.sleep(rng.uniform(0.2, 1.2))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()
        now = ok_cells(bench)
        assert known.items() <= now.items(), "an ok cell was lost"
        known = now
        for path in bench.folder.cells.glob("*.json"):
            json.loads(path.read_bytes())

    outcome = bench.run()
    assert outcome.state == "finished"
    assert bench.status()["counts"] == {"ok": 8}
    assert known.items() <= ok_cells(bench).items()
    bench.check_schemas()
    assert [event["seq"] for event in bench.events()] == list(range(1, len(bench.events()) + 1))
    for name in ok_cells(bench):
        cell = bench.cell(name)
        records = read_requests(bench.folder.requests(name))
        assert cell.requests.planned == cell.requests.ok == len(records)
        assert sum(record.completion_tokens for record in records) == cell.metrics.completion_tokens
    assert not list(bench.folder.root.rglob(".*.tmp-*"))
    assert bench.run().message == "8 cells: all kept from before, nothing to run"
