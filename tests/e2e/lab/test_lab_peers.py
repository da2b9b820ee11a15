"""Two nodes: one takes its model from the other, by a server that is there for the time of the copy only."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from lab_pair import Pair
from lab_room import PROJECT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

WEIGHTS = PROJECT / "tests/data/models/tiny-qwen2.gguf"


@pytest.fixture(scope="module")
def pair(room, tmp_path_factory):
    """ct200 has the model staged; ct201 has it neither in memory nor on its disk."""
    room.lab("up --fresh --nodes 2")
    pair = Pair(room, tmp_path_factory.mktemp("peers"))
    pair.stage("--limit ct200")
    pair.forget("ct201", cache=True)
    return pair


@pytest.fixture(scope="module")
def right():
    return hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()


def test_a_node_takes_its_model_from_one_that_has_it(pair, right):
    """The one that has it need not be part of the run."""
    said = pair.stage("--limit ct201")

    assert "ct201 tiny-qwen2: 3.3 MB from the node ct200 in " in said
    assert "(the HF cache: /var/lib/models/hub has no models--lab--tiny-qwen2 " in said
    assert pair.sums() == [right, right]
    assert not pair.serves("ct200")
    again = pair.stage()
    assert again.count("tiny-qwen2: already in /dev/shm, proven intact") >= 2
    assert "changed nothing" in again


def test_where_none_has_it_the_others_wait_for_the_first(pair, right):
    """ct200 has it on its disk, so it is the first, and ct201 takes it from there."""
    pair.forget("ct200", cache=False)
    pair.forget("ct201", cache=True)

    said = pair.stage()

    assert "ct200 tiny-qwen2: 3.3 MB from the HF cache in " in said
    assert "ct201 tiny-qwen2: 3.3 MB from the node ct200 in " in said
    assert pair.sums() == [right, right]
    assert not pair.serves("ct200")


def test_a_copy_on_the_disk_that_turns_out_wrong_sends_for_the_other_node(pair, right):
    """The file has the right size, so that only copying it shows that a byte is wrong."""
    pair.forget("ct201", cache=True)
    ssh = "ssh -F /run/lab/ssh/config"
    pair.room(f"{ssh} ct200 tar -C /var/lib/models -c hub | {ssh} ct201 tar -C /var/lib/models -x")
    pair.on("ct201", "printf X | dd of=$(ls /var/lib/models/hub/*/blobs/*) bs=1 seek=2000000 conv=notrunc")

    said = pair.stage()

    assert "ct201 tiny-qwen2: 3.3 MB from the node ct200 in " in said
    assert pair.sums() == [right, right]
    assert not pair.serves("ct200")


def test_nodes_that_do_not_answer_are_reasons(pair):
    pair.forget("ct201", cache=True)
    peers = json.dumps({"model_stage_peers": ["ct998", "ct999"]})

    said = pair.stage(f"--limit ct201 -e '{peers}'", status=2)

    assert "UNREACHABLE" not in said
    assert "FAILED: model_stage : others | Start the stager for what can be had now" in said
    assert "another node: ct998 does not answer; ct999 does not answer" in said


def test_what_would_be_asked_for_is_said_and_nothing_begun(pair):
    pair.forget("ct201", cache=True)

    said = pair.stage("--check")

    assert "ct201 tiny-qwen2: would ask another node for it (no source can say" in said
    assert pair.on("ct201", "ls -A /dev/shm") == ""
    assert not pair.serves("ct200")


def test_a_run_that_is_killed_leaves_the_copy_at_work_and_the_next_finds_it(pair, right):
    pair.forget("ct201", cache=True)
    pair.on("ct200", "tc qdisc add dev eth0 root tbf rate 1mbit burst 64kbit latency 400ms")
    before = int(pair.on("ct201", "journalctl -u model-stage-tiny-qwen2 -o cat | grep -c Started || true"))
    try:
        # A session of its own: ansible's workers end with it.
        pair.room(f"(setsid {pair.command} >/dev/null 2>&1 & echo $! >/run/killed.pid)")
        pair.wait_for_bytes()
        pair.room("kill -KILL -- -$(cat /run/killed.pid)")
        assert pair.on("ct201", "systemctl is-active model-stage-tiny-qwen2") == "active"
        assert pair.serves("ct200"), "it ends by itself later; the copy needs it"

        # Slow until the next run has found it.
        pair.on("ct200", "(sleep 7; tc qdisc del dev eth0 root) >/dev/null 2>&1 &")
        said = pair.stage()
    finally:
        pair.on("ct200", "tc qdisc del dev eth0 root 2>/dev/null || true")

    assert "ct201 tiny-qwen2: 3.3 MB from the node ct200 in " in said
    starts = int(pair.on("ct201", "journalctl -u model-stage-tiny-qwen2 -o cat | grep -c Started"))
    assert starts == before + 1, "the copy was found, not begun again"
    assert pair.sums() == [right, right]
    assert not pair.serves("ct200")


@pytest.mark.long
def test_a_node_that_goes_away_midway_is_named_and_what_came_is_kept(pair):
    """Half of a model of four parts arrives; the next run needs only the rest."""
    pair.on("ct201", "rm -rf /dev/shm/* /dev/shm/.model-stage")
    folder, program = "/var/lib/models/large", "/opt/recover-and-bench/model-stager/current"
    pair.on(
        "ct200",
        f"mkdir -p {folder}; for n in 1 2 3 4; do head -c 40000000 /dev/urandom > {folder}/$n.bin; done;"
        f"cd {program}; python3 -m model_stager manifest create --from {folder}",
    )
    sources = [{"kind": "directory", "path": folder}, {"kind": "peer"}]
    wanted = json.dumps({"model_stage_models": [{"name": "large", "sources": sources}]})
    pair.stage(f"--limit ct200 -e '{wanted}'")
    pair.on("ct200", "tc qdisc add dev eth0 root tbf rate 100mbit burst 256kbit latency 400ms")
    try:
        pair.room(f"({pair.command} -e '{wanted}' >/run/midway.txt 2>&1; echo ended >>/run/midway.txt) &")
        pair.wait_for_bytes(model="large", at_least=90_000_000)
        pair.on("ct200", "systemctl kill -s KILL model-serve; tc qdisc del dev eth0 root")
        pair.room("until grep -q ended /run/midway.txt; do sleep 1; done")
    finally:
        pair.on("ct200", "tc qdisc del dev eth0 root 2>/dev/null || true")
    failed = " ".join(pair.room("cat /run/midway.txt").split())

    said = pair.stage(f"-e '{wanted}'")

    assert "ct201 FAILED: model_stage : follow | Follow the copy large: no source could give " in failed
    assert re.search(r"the node ct200: \d.bin can't be had: 10.77.0.20:8790 refuses the connection", failed)
    found = re.search(r"ct201 large: ([0-9.]+) MB from the node ct200 in .*?\(([0-9.]+) MB were there", said)
    assert found
    assert float(found[1]) + float(found[2]) == pytest.approx(160.0, abs=0.2)
    assert float(found[2]) >= 40.0
    assert pair.on("ct200", "cat /dev/shm/large/*.bin | sha256sum") == pair.on(
        "ct201", "cat /dev/shm/large/*.bin | sha256sum"
    )


def test_too_little_memory_is_named_before_a_byte_is_copied(pair):
    pair.room.lab("break shm-too-small ct201")

    said = pair.stage("--limit ct201", status=2)

    assert "tiny-qwen2: 3.3 MB does not fit into /dev/shm (1.0 MB), and no source on this node has it" in said
    assert pair.on("ct201", "find /dev/shm -name '*.gguf'") == ""
    assert not pair.serves("ct200")
    pair.on("ct201", "sed -i '/dev.shm/d' /etc/fstab; mount -o remount,size=50% /dev/shm")
