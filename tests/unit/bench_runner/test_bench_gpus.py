"""GPU memory before and after a server, and whether GPUs reach each other: with real child processes."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest
from bench_runner.deployment import Deployment
from bench_runner.server.gpus import GpuWatch, Memory, read_memory
from bench_runner.server.peers import SCRIPT, check_peers, run_check

from tests.sim.nvidia_smi import new_state
from tests.unit.bench_runner.conftest import ROOT


class Card:
    """The GPUs that nvidia-smi shows."""

    def __init__(self, folder):
        self.path = folder / "gpus.json"
        self.command = [sys.executable, str(ROOT / "tests/sim/nvidia_smi.py")]
        self.state = new_state(2)
        self.write()

    def write(self, **faults):
        self.state["faults"] = faults
        self.path.write_text(json.dumps(self.state))

    def hold(self, index, used, *, pid=None, name="sglang::scheduler_TP0, x"):
        gpu = self.state["gpus"][index]
        gpu["memory.used"] = used
        app = {"gpu_uuid": gpu["uuid"], "pid": pid, "process_name": name, "used_memory": used}
        self.state["apps"] = [app] if pid else []
        self.write()


@pytest.fixture
def card(tmp_path, monkeypatch):
    made = Card(tmp_path)
    monkeypatch.setenv("NVIDIA_SMI_STATE", str(made.path))
    return made


def test_memory_and_who_holds_it_are_read_from_nvidia_smi(card):
    card.hold(1, 54100, pid=4242)
    found = read_memory(card.command)
    assert (found.used_mib, found.total_mib) == ({"0": 4, "1": 54100}, {"0": 97887, "1": 97887})
    assert [(each.gpu, each.pid, each.name) for each in found.holders] == [
        ("1", 4242, "sglang::scheduler_TP0, x")
    ]
    said = found.sentence({"0": 204, "1": 204})
    assert said.startswith("GPU 1 uses 54100 MiB (free it is 204 MiB at most): held by pid 4242")
    assert "GPU 0" not in said


def test_a_holder_that_nvidia_smi_cannot_name_is_named_by_proc(card):
    card.hold(0, 500, pid=os.getpid(), name="[Not Found]")
    (holder,) = read_memory(card.command).holders
    assert holder.name in {"pytest", "python", "python3", "MainThread"} or holder.name.startswith("py")


def test_where_no_process_is_shown_the_sentence_says_where_to_look():
    memory = Memory(used_mib={"0": 9000})
    assert "no process is shown here; look on the host" in memory.sentence({"0": 204})


@pytest.mark.parametrize(
    ("command", "faults", "why"),
    [
        (["nvidia-smi-that-is-not-there"], {}, "no nvidia-smi-that-is-not-there here, so no GPU to watch"),
        (None, {"driver": "not_loaded"}, "nvidia-smi ended with 9: NVIDIA-SMI has failed"),
        (None, {"unknown_fields": ["memory.used"]}, 'nvidia-smi ended with 2: Field "memory.used"'),
    ],
    ids=["no tool", "no driver", "no field"],
)
def test_where_gpus_cannot_be_asked_it_is_skipped_with_the_reason(card, command, faults, why):
    card.write(**faults)
    assert read_memory(command or card.command).skipped.startswith(why)


def test_the_first_look_at_free_gpus_is_the_baseline_and_a_context_more_is_held(card):
    watch = GpuWatch(card.command, freed_s=0.1)
    assert watch.limit_mib() == {}
    asyncio.run(watch.require_free(None, 2))
    assert watch.limit_mib() == {"0": 204, "1": 204}
    card.hold(1, 450, pid=4242)
    memory = asyncio.run(watch.require_free(None, 2))
    assert memory.above(watch.limit_mib()) == {"1": 450}
    assert watch.baseline_mib == {"0": 4, "1": 4}


@pytest.mark.parametrize(
    ("visible", "count", "mine"),
    [
        (None, 1, ["0"]),
        (None, 2, ["0", "1"]),
        ("1", 1, ["1"]),
        ("GPU-00000001-aaaa", 1, ["1"]),
        ("GPU-00000001-aaaa-bbbb-cccc-000000000001, 0", 2, ["0", "1"]),
    ],
)
def test_only_the_gpus_of_a_configuration_count(card, visible, count, mine):
    card.hold(1, 54100, pid=4242)
    memory = read_memory(card.command).of(visible, count)
    assert list(memory.used_mib) == mine
    assert bool(memory.above({})) == ("1" in mine)
    assert [holder.gpu for holder in memory.holders] == [gpu for gpu in mine if gpu == "1"]


def test_memory_that_is_freed_while_it_is_waited_for_is_free(card):
    watch = GpuWatch(card.command, freed_s=5)
    asyncio.run(watch.require_free(None, 2))
    card.hold(0, 9000, pid=4242)

    async def freed():
        waiting = asyncio.ensure_future(watch.require_free(None, 2))
        await asyncio.sleep(0.3)
        card.hold(0, 4)
        return await waiting

    assert asyncio.run(freed()).above(watch.limit_mib()) == {}


def deployment(**changes):
    return Deployment(
        schema_version=1,
        configuration="tp4-auto",
        unit="inference-tp4-auto.service",
        url="http://127.0.0.1:1",
        engine="sglang",
        adapter="sglang",
        served_model="m",
        model="m",
        **{"tensor_parallelism": 4, "python": sys.executable, **changes},
    )


SEEN = Memory(used_mib={"0": 4})


@pytest.mark.parametrize(
    ("deployed", "memory", "why"),
    [
        (deployment(tensor_parallelism=1), SEEN, "one GPU needs no other"),
        (deployment(), Memory(skipped="no nvidia-smi here, so no GPU to watch"), "no nvidia-smi here"),
        (deployment(python=None), SEEN, "names no Python of the engine"),
        (deployment(python="/nowhere/python"), SEEN, "can't be run by this user"),
    ],
    ids=["tp 1", "no gpu", "no python", "no such python"],
)
def test_the_peers_are_not_checked_where_that_cannot_be_and_it_is_said(deployed, memory, why):
    found = asyncio.run(check_peers(deployed, memory))
    assert (found.outcome, found.forbids) == ("skipped", False)
    assert why in found.sentence


def test_an_engine_without_torch_is_skipped_by_the_script_itself():
    """The real script, run by this Python, which has no torch."""
    found = asyncio.run(check_peers(deployment(), SEEN))
    assert found.outcome == "skipped"
    assert "the engine's Python has no torch" in found.sentence
    assert len(SCRIPT.read_text().splitlines()) <= 100


def child(tmp_path, text):
    path = tmp_path / "child.py"
    path.write_text(text)
    return [sys.executable, str(path)]


GOOD = '{"ok": true, "mib": 64, "best_s": 0.0125, "pairs": 12, "pairs_without_p2p": ["0-2"]}'


@pytest.mark.parametrize(
    ("text", "outcome", "part"),
    [
        (
            f"print('NCCL version 2.27'); print('''{GOOD}''')",
            "ok",
            "64 MiB took 12.5 ms; 1 of 12 pairs without",
        ),
        ('print(\'{"failed": "ncclSystemError"}\'); raise SystemExit(1)', "failed", "ncclSystemError"),
        ("raise RuntimeError('no NCCL')", "failed", "(exit 1): RuntimeError: no NCCL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "failed", "(exit -11): no word"),
        ("print('done')", "failed", "(exit 0): no word"),
    ],
    ids=["ok", "failed", "raised", "crashed", "no answer"],
)
def test_what_the_child_says_or_how_it_ends_is_the_outcome(tmp_path, text, outcome, part):
    found = asyncio.run(run_check(child(tmp_path, text), limit_s=20))
    assert found.outcome == outcome
    assert part in found.sentence
    assert found.forbids == (outcome != "ok")


def test_a_child_that_hangs_is_ended_in_time_with_all_that_it_started(tmp_path):
    pids = tmp_path / "pids"
    text = (
        "import os, subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{other.pid}}')\n"
        "time.sleep(60)\n"
    )
    started = time.monotonic()
    found = asyncio.run(run_check(child(tmp_path, text), limit_s=1.0))
    assert time.monotonic() - started < 5
    assert (found.outcome, found.forbids) == ("timed_out", True)
    assert "did not end within 1 s" in found.sentence
    assert "NCCL_P2P_DISABLE=1" in found.sentence
    for pid in pids.read_text().split():
        assert not is_running(pid)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
