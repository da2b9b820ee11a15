"""The hub as a source: its own client beside ours, what it refuses, and where a token goes."""

import os
import re
import subprocess
import sys
from importlib import metadata

import pytest
from model_stager import hub_client
from model_stager.errors import NoSourceError
from model_stager.request import SourceSpec, parse_source
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.sim.faulty_http import Fault
from tests.sim.hub import COMMIT

from .conftest import ROLE, needed, published
from .network import SHARD, SILENT, hub, hub_server, request_of, staged

TOKEN = "hf_SecretOfTheTests"
OTHER = "hf_AnotherSecret"
RESOLVE = f"/lab/tiny/resolve/{COMMIT}"


@pytest.fixture
def server(files):
    files["encoder/config.json"] = b'{"nested": true}'
    with hub_server(files, page=3, branches=("main", "v1")) as server:
        yield server


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


def test_the_hubs_own_client_and_ours_get_the_same(server, root, files, tmp_path):
    """The test server is shaped like the hub as far as the hub's own client can tell."""
    code = "import sys, huggingface_hub as h; print(h.snapshot_download('lab/tiny', local_dir=sys.argv[1]))"
    environment = {
        **os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "theirs"], env=environment, capture_output=True, check=False
    )

    request = request_of(root, hub(server))
    outcome = staged(request)

    assert done.returncode == 0, done.stderr.decode()
    theirs = {name: (tmp_path / "theirs" / name).read_bytes() for name in files}
    assert theirs == files
    assert published(request) == needed(files)
    assert outcome.manifest.revision == COMMIT
    assert outcome.manifest.complete
    assert outcome.by_source == {
        f"the hub {server.url}": {"files": 6, "bytes": sum(map(len, needed(files).values()))}
    }


def test_weights_are_asked_of_the_cdn_by_range_and_without_a_second_way(server, root):
    staged(request_of(root, hub(server)))

    assert {seen.range for seen in server.cdn.seen} == {"bytes=0-300116", "bytes=0-301116", "bytes=0-302116"}
    assert not any("xet" in seen.path for seen in server.seen)


def test_a_branch_is_pinned_to_its_commit(server, root):
    staged(request_of(root, hub(server), revision="v1"))

    asked = [seen.path for seen in server.seen if "/resolve/" in seen.path or "/tree/" in seen.path]
    assert asked
    assert all(COMMIT in path for path in asked)


def test_a_commit_that_is_named_needs_no_hub_once_it_is_there(server, root):
    staged(request_of(root, hub(server), revision=COMMIT))
    server.seen.clear()

    assert staged(request_of(root, hub(server), revision=COMMIT)).action == "none"
    assert server.seen == []


def test_a_small_file_is_checked_by_gits_id(server, root):
    server.faults[:] = [Fault("corrupt", path=f"{RESOLVE}/config.json")]

    with pytest.raises(NoSourceError, match=r"config\.json has git blob id \w+, it should be \w+"):
        staged(request_of(root, hub(server)))


def test_a_flipped_byte_in_weights_is_named_with_both_sums(server, root):
    server.cdn.faults[:] = [Fault("corrupt", path=f"/blobs/{SHARD}*")]

    with pytest.raises(NoSourceError, match=rf"{SHARD} .*sha256 \w+, the manifest says \w+"):
        staged(request_of(root, hub(server)))


def test_an_expired_location_is_looked_up_again(server, root, files):
    """The CDN refuses what was signed too long ago, once for each file."""
    for name in (SHARD, "model-00001-of-00003.safetensors"):
        server.cdn.faults.append(Fault("status", status=403, path=f"/blobs/{name}*", times=1))
    request = request_of(root, hub(server))

    staged(request)

    assert published(request) == needed(files)
    heads = [seen.path for seen in server.seen if seen.method == "HEAD" and seen.path.endswith(SHARD)]
    assert len(heads) == 2


def test_a_location_that_is_refused_twice_is_named_without_its_signature(server, root):
    server.cdn.faults[:] = [Fault("status", status=403, path="/blobs/*")]

    with pytest.raises(NoSourceError) as caught:
        staged(request_of(root, hub(server)))

    assert re.search(rf"{server.cdn.url}/blobs/model-\S+ answers 403", str(caught.value))
    assert "Signature" not in str(caught.value)


def test_a_list_that_lies_about_a_size_is_named(server, root):
    server.faults[:] = [Fault("wrong_total", path=f"{RESOLVE}/{SHARD}", method="HEAD")]

    with pytest.raises(NoSourceError, match="has 301118 bytes by its head, 301117 by the hub's list"):
        staged(request_of(root, hub(server)))


def test_a_revision_that_is_not_there_is_named_with_those_that_are(server, root):
    with pytest.raises(NoSourceError, match=r"has no such revision: 'v2' \(it has main, v1\)"):
        staged(request_of(root, hub(server), revision="v2"))


def test_a_model_that_is_not_there_is_named(server, root):
    with pytest.raises(NoSourceError, match=r"answers 401: there is no such model, or it is private"):
        staged(request_of(root, hub(server), repo="lab/other"))


def test_a_busy_hub_is_waited_for_within_the_patience(server, root, files):
    busy = Fault("status", path="/api/*", status=429, headers={"Retry-After": "0"}, times=2)
    server.faults[:] = [busy]
    request = request_of(root, hub(server))

    staged(request)

    assert busy.seen > 2
    assert published(request) == needed(files)


API_FAULTS = {
    "busy for an hour": (
        Fault("status", status=429, headers={"Retry-After": "3600"}),
        "answers 429 (Too Many Requests, and says to wait 3600 s)",
    ),
    "broken": (Fault("status", status=502), "answers 502 (Bad Gateway)"),
    "circle": (Fault("loop"), "redirects in a circle"),
    "no JSON": (Fault("html"), "gives an answer that huggingface_hub can't read"),
    "a byte now and then": (Fault("slow_headers"), "gave no whole answer in 1 s"),
}


@pytest.mark.parametrize(("fault", "said"), API_FAULTS.values(), ids=API_FAULTS)
def test_a_hub_that_can_not_answer_is_told_in_one_sentence(server, root, fault, said, monkeypatch):
    monkeypatch.setattr(hub_client, "CONNECT_S", 0.4)
    fault.path, fault.seen = "/api/*", 0
    server.faults[:] = [fault]
    fields = SILENT if fault.name == "slow_headers" else {}

    with pytest.raises(NoSourceError) as caught:
        staged(request_of(root, hub(server), **fields))

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_hub_that_is_away_is_told(root):
    with pytest.raises(NoSourceError, match=r"127\.0\.0\.1:9/.* refuses the connection"):
        staged(request_of(root, SourceSpec("hub", url="http://127.0.0.1:9")))


def test_the_endpoint_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    assert parse_source("hub").url == "https://mirror.example"
    assert parse_source("hub=https://given.example").url == "https://given.example"
    monkeypatch.delenv("HF_ENDPOINT")
    assert parse_source("hub").label == "the hub https://huggingface.co"


def test_without_the_hubs_client_the_ladder_says_how_to_get_it(server, root):
    """With the system's Python, which has no package installed."""
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from model_stager.cli import main; sys.exit(main())"
    )
    command = ["/usr/bin/python3", "-I", "-c", code, ROLE / "files", "check", "--name", "tiny"]
    command += ["--repo", "lab/tiny", "--root", root, "--source", f"hub={server.url}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 3
    assert "huggingface_hub, which asks the hub, is not installed" in done.stderr
    assert "pip install 'huggingface_hub>=2,<3'" in done.stderr


def test_where_the_hub_may_not_be_asked_it_is_not(server, root):
    environment = {**os.environ, "PYTHONPATH": str(ROLE / "files"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "model_stager", "check", "--name", "tiny", "--repo", "lab/tiny"]
    command += ["--root", root, "--source", f"hub={server.url}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert "HF_HUB_OFFLINE is set, so the hub may not be asked" in done.stderr
    assert server.seen == []


# Who may have it


@pytest.fixture
def private(files):
    with hub_server(files, tokens={TOKEN: True, OTHER: False}) as server:
        yield server


@pytest.fixture
def gated(files):
    with hub_server(files, tokens={TOKEN: True, OTHER: False}, gated=True) as server:
        yield server


def test_a_private_model_comes_with_the_token(private, root, files, token_file):
    request = request_of(root, hub(private), token_file=token_file)

    staged(request)

    assert published(request) == needed(files)


def test_a_private_model_without_a_token_says_what_it_wants(private, root):
    with pytest.raises(NoSourceError, match=r"answers 401: there is no such model, or .* give --token-file"):
        staged(request_of(root, hub(private)))


def test_a_wrong_token_is_told(private, root, token_file):
    token_file.write_text("hf_wrong")

    with pytest.raises(NoSourceError, match="answers 401: the token is wrong or has expired") as caught:
        staged(request_of(root, hub(private), token_file=token_file))

    assert "hf_wrong" not in str(caught.value)


@pytest.mark.parametrize("token", [OTHER, None], ids=["another account", "no token"])
def test_a_gated_model_says_whose_licence_to_accept_where(gated, root, token_file, token):
    fields = {}
    if token:
        token_file.write_text(token)
        fields = {"token_file": token_file}

    with pytest.raises(NoSourceError) as caught:
        staged(request_of(root, hub(gated), **fields))

    assert f"the model is gated. Accept its licence on {gated.url}/lab/tiny with the account" in str(
        caught.value
    )
    assert not list(root.glob("tiny*")), "known before the first byte"


def test_the_nodes_pins_are_what_is_tested_here():
    """The client and all that it needs, none of it forgotten."""
    lines = (ROLE / "files/hub-requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    waiting, needs = ["huggingface-hub"], set()
    while waiting:
        name = waiting.pop()
        if name not in needs:
            needs.add(name)
            found = (Requirement(text) for text in metadata.requires(name) or [])
            waiting += [
                canonicalize_name(need.name) for need in found if not need.marker or need.marker.evaluate()
            ]

    assert pins == {name: metadata.version(name) for name in sorted(needs)}
