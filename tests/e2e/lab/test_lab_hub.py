"""The hub as a source, by the unit that an operator's run starts: who asks, and who sees the token."""

from __future__ import annotations

import hashlib
import json

import pytest
from lab_pair import Pair
from lab_room import PROJECT

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(300)]

WEIGHTS = PROJECT / "tests/data/models/tiny-qwen2.gguf"
SECRET = "hf_lab_secret"
TOKEN = "/etc/recover-and-bench/hub-token"
HUB = "http://127.0.0.1:8990"
CACHE = {"kind": "hf_cache", "path": "/var/lib/models/hub"}
SOURCES = [CACHE, {"kind": "peer"}, {"kind": "hub", "endpoint": HUB}]
WANTED = {
    "model_stage_models": [{"name": "tiny-qwen2", "repo": "lab/tiny-qwen2", "sources": SOURCES}],
    "model_stage_hub_token_file": TOKEN,
}


@pytest.fixture(scope="module")
def pair(room, tmp_path_factory):
    """Two nodes without a copy. Each has the hub on its own loopback, under the same URL."""
    room.lab("up --fresh --nodes 2")
    pair = Pair(room, tmp_path_factory.mktemp("hub"))
    ssh = "ssh -F /run/lab/ssh/config"
    for node in ("ct200", "ct201"):
        room(f"tar -c tests/sim tests/data/models/{WEIGHTS.name} | {ssh} {node} tar -C /opt -x")
        give_token(pair, node, SECRET)
    return pair


@pytest.fixture(autouse=True)
def _empty(pair):
    for node in ("ct200", "ct201"):
        pair.forget(node, cache=True)
        start_hub(pair, node)


def start_hub(pair, node, faults=()):
    hub = "python3 -m tests.sim.hub --folder tests/data/models --repo lab/tiny-qwen2 --port 8990"
    unit = "systemctl stop hub 2>/dev/null || true; systemd-run --quiet --unit=hub -p WorkingDirectory=/opt"
    pair.on(node, f"{unit} {hub} --token {SECRET} --faults '{json.dumps(faults)}'")


def give_token(pair, node, text):
    pair.on(node, f"mkdir -p $(dirname {TOKEN}); install -m 600 /dev/null {TOKEN}; echo {text} > {TOKEN}")


def test_one_node_asks_the_hub_and_the_other_takes_it_from_there(pair):
    said = pair.stage(f"-vv -e '{json.dumps(WANTED)}'")

    assert "ct200 tiny-qwen2: 3.3 MB from the hub http://127.0.0.1:8990 in " in said
    assert "ct201 tiny-qwen2: 3.3 MB from the node ct200 in " in said
    assert pair.sums() == [hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()] * 2
    assert SECRET not in said.replace(" ", ""), "not even wrapped"
    for node in ("ct200", "ct201"):
        # The stand-in itself has the token in its arguments, so its own lines are left out.
        assert pair.on(node, f"journalctl -o cat | grep -v tests.sim | grep -c {SECRET} || true") == "0"
        folders = "/dev/shm /etc/systemd /run/systemd /var/lib /var/tmp /tmp"
        assert pair.on(node, f"grep -rl --exclude=hub.service {SECRET} {folders} || true") == ""
    assert pair.on("ct200", "ls -A /run/credentials | grep model-stage || true") == ""


def test_a_node_with_a_wrong_token_takes_it_from_one_with_a_right_one(pair):
    give_token(pair, "ct200", "hf_wrong")

    said = pair.stage(f"-e '{json.dumps(WANTED)}'")
    give_token(pair, "ct200", SECRET)

    assert "ct201 tiny-qwen2: 3.3 MB from the hub http://127.0.0.1:8990 in " in said
    assert "ct200 tiny-qwen2: 3.3 MB from the node ct201 in " in said


def test_where_the_first_fails_the_others_go_their_own_way(pair):
    """What the first node gets is damaged on its way."""
    start_hub(pair, "ct200", [{"on": "cdn", "name": "corrupt"}])

    said = pair.stage(f"-e '{json.dumps(WANTED)}'", status=2)

    assert "ct200 FAILED: " in said
    assert "ct201 tiny-qwen2: 3.3 MB from the hub http://127.0.0.1:8990 in " in said
    assert "another node: ct200 was to get it first, and has not got it" in said
    assert not pair.serves("ct200")
    assert not pair.serves("ct201")
