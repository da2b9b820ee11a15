"""What the tests of whole campaigns ask of one: its statuses, reason codes and events."""

import json
import time

from tests.unit.bench_runner.conftest import SMALL_PLAN

TWO = ["tp1-auto", "tp1-ddtree-b8"]


def two_plan(bench, **changes):
    bench.plan(SMALL_PLAN, configurations=TWO, **changes)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def statuses(bench):
    return {
        path.name.removesuffix(".json"): json.loads(path.read_bytes())["status"]
        for path in sorted(bench.folder.cells.glob("*.json"))
    }


def codes(bench, name):
    return [reason.code for reason in bench.cell(name).reasons]


def events(bench, kind):
    return [event for event in bench.events() if event["event"] == kind]


def wait_for(holds, limit_s=15.0):
    until = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)
