"""The module where other nodes or the hub are among the sources: what is asked for, what is begun alone."""

import contextlib
import threading

import pytest
from model_stager.serve import ModelServer

from .conftest import REPO, Cache, needed, tree
from .network import hub_server
from .playing import model

from ansible.module_utils.model_stage import command, others, runner  # isort: skip - the path is set by `playing`

PEER = {"kind": "peer"}
NO_VENV = "/no/such/venv/bin/python"


@pytest.fixture
def away(tmp_path):
    return {"kind": "hf_cache", "path": str(tmp_path / "cleared")}


@contextlib.contextmanager
def serve(folder):
    """Another node."""
    with ModelServer(folder, "127.0.0.1:0", []) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://{server.address}"
        server.shutdown()


def test_what_its_own_disks_have_is_started_without_asking_anybody(play, cache, root):
    own = {"kind": "hf_cache", "path": str(cache.path)}

    result = play([model("tiny", cache, sources=[own, PEER])], hold=True)

    assert result["finished"]
    assert result["needs"] == []
    assert [offer["name"] for offer in result["holds"]] == ["tiny"]
    assert result["holds"][0]["digest"] == result["digests"]["tiny"]


def test_what_is_missing_is_said_and_nothing_begun(play, cache, root, away, tmp_path):
    lost = model("lost", cache, sources=[away, PEER])

    result = play([model("there", cache), lost], hold=True)

    assert not result["finished"]
    assert not result["changed"]
    assert result["progress"] == "lost: no own copy, another node is asked next"
    (need,) = result["needs"]
    assert (need["name"], need["alone"], need["kinds"]) == ("lost", "no", ["hf_cache", "peer"])
    assert need["identity"] == {"repo": REPO, "revision": "main", "include": ["*"], "exclude": None}
    assert f"the HF cache: there is no folder {away['path']}" in need["reason"]
    assert [offer["name"] for offer in result["will"]] == ["there"]
    assert tree(root) == {}
    assert not (tmp_path / "program").exists()


def test_in_check_mode_it_says_who_would_be_asked(play, cache, root, away):
    sources = [away, PEER, {"kind": "hub"}]

    result = play([model("tiny", cache, sources=sources)], hold=True, check=True, python=NO_VENV)

    assert result["finished"]
    assert result["changed"]
    assert result["summary"].startswith("tiny: would ask another node or else the hub for it (no source ")
    assert result["paths"] == {"tiny": f"{root}/tiny"}


def test_without_others_it_is_refused_as_ever(play, cache, away):
    result = play([model("tiny", cache, sources=[away])], hold=True)

    assert result["failed"]
    assert result["msg"].startswith("tiny: no source can say what the model consists of")


@pytest.mark.parametrize(
    ("sources", "alone"), [([PEER, "cache"], "yes"), ([PEER, {"kind": "hub"}], "perhaps"), ([PEER], "no")]
)
def test_it_says_whether_it_could_get_the_model_alone(play, cache, sources, alone):
    own = {"kind": "hf_cache", "path": str(cache.path)}
    given = [own if source == "cache" else source for source in sources]

    (need,) = play([model("tiny", cache, sources=given)], hold=True, python=NO_VENV)["needs"]

    assert need["alone"] == alone
    assert bool(need["digest"]) == (alone == "yes")


def test_a_copy_that_turns_out_wrong_is_asked_for_elsewhere(play, cache, root, files, tmp_path):
    """The sizes are right, so that only the copying finds the wrong byte; the next call asks another node."""
    good = Cache(tmp_path / "good").add(files)
    other = tmp_path / "other"
    other.mkdir()
    play([model("tiny", good)], root=str(other))
    name = "model-00002-of-00003.safetensors"
    content = bytearray(files[name])
    content[-1] ^= 1
    cache.blob(name).write_bytes(content)
    own = {"kind": "hf_cache", "path": str(cache.path)}
    models = [model("tiny", cache, sources=[own, PEER])]

    first = play(models, hold=True)
    with serve(other) as url:
        models[0]["sources"][1] = {"kind": "peer", "name": "ct200", "url": f"{url}/tiny"}
        second = play(models, since=first["since"], done=first["models"])

    assert first["needs"][0]["name"] == "tiny"
    assert "sha256" in first["needs"][0]["reason"]
    assert not first["finished"]
    assert second["finished"]
    assert "the node ct200 in " in second["summary"]
    assert {path.name: path.read_bytes() for path in (root / "tiny").iterdir()} == needed(files)


def test_what_is_waited_for_is_left_and_taken_later(play, cache, root, away, tmp_path):
    models = [model("now", cache), model("later", cache, sources=[away, PEER])]
    first = play(models, hold=True)
    absent = {"kind": "absent", "name": "another node", "reason": "ct200 does not answer"}
    models[1]["sources"][1] = absent

    second = play(models, since=first["since"], done=first["models"], leave=["later"])
    third = play(models, since=first["since"], done=second["models"])

    assert second["finished"]
    assert "summary" not in second, "the node's line comes once, when all is there"
    assert [record["model"] for record in second["models"]] == ["now"]
    assert third["failed"]
    assert "another node: ct200 does not answer" in third["msg"]


def test_a_hub_that_knows_the_token_gives_the_model(play, cache, root, files, tmp_path):
    token = tmp_path / "token"
    token.write_text("hf_right\n")
    token.chmod(0o600)
    with hub_server(files, repo=REPO, tokens={"hf_right": True}) as hub:
        asked = [model("tiny", cache, sources=[{"kind": "hub", "endpoint": hub.url}])]

        result = play(asked, hold=True, token_file=str(token))

    assert result["finished"]
    assert "from the hub http://127.0.0.1:" in result["summary"]
    written = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert b"hf_right" not in written
    assert "hf_right" not in str(result)


def test_only_a_model_with_a_source_on_a_network_gets_one():
    closed = command.systemd_run("tiny", ["x"], command.Setting("/opt/x", "/dev/shm", "model-stager"))
    setting = command.Setting("/opt/x", "/dev/shm", "model-stager", network=True, token_file="/etc/token")
    opened = command.systemd_run("tiny", ["x"], setting)

    assert "--property=PrivateNetwork=yes" in closed
    assert "--property=RestrictAddressFamilies=AF_UNIX" in closed
    assert not [word for word in closed if "Credential" in word]
    assert "--property=PrivateNetwork=yes" not in opened
    assert "--property=RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6" in opened
    assert "--property=LoadCredential=hub-token:/etc/token" in opened


def test_the_unit_reads_the_token_where_systemd_has_put_it():
    asks = {"name": "tiny", "sources": [{"kind": "hub"}]}
    path = runner.Systemd(lambda _: (0, "", "")).token_path("tiny", "/etc/token")

    assert path == "/run/credentials/model-stage-tiny.service/hub-token"
    assert command.token(asks, path) == ["--token-file", path]
    assert command.token({"name": "tiny", "sources": [{"kind": "http", "url": "http://x"}]}, path) == []


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"kind": "hf_cache", "path": "/hub"}, "hf_cache=/hub"),
        ({"kind": "http", "url": "http://x/tiny"}, "http=http://x/tiny"),
        ({"kind": "hub", "endpoint": None}, "hub"),
        ({"kind": "hub", "endpoint": "https://mirror"}, "hub=https://mirror"),
        ({"kind": "peer", "name": "ct200", "url": "http://x/tiny"}, "peer=ct200=http://x/tiny"),
        (others.NOT_ASKED, "absent=the other nodes=not asked yet"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)
def test_each_kind_of_source_has_its_words(source, text):
    assert command.source_text(source) == text
