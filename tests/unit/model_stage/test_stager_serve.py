"""A node that gives its models to others: whole ones, to whom it may, and nothing else."""

import http.client
import os
import subprocess
import sys
import threading
from contextlib import closing
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_stager.request import SourceSpec
from model_stager.serve import ModelServer, parse_range

from .conftest import ROLE, needed, published, run_stage, stager
from .network import SHARD, request_of, staged


@pytest.fixture
def node(want, root):
    """A node with the model `tiny`, which serves it."""
    run_stage(want())
    with ModelServer(root, "127.0.0.1:0", []) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def ask(node, path, method="GET", **headers):
    with closing(http.client.HTTPConnection(*node.server_address)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_another_node_takes_the_model_and_serves_it_on(node, root, files, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    peer = SourceSpec("peer", url=f"http://{node.address}/tiny", name="ct200")
    request = request_of(other, peer)

    outcome = staged(request)

    assert published(request) == needed(files)
    assert list(outcome.by_source) == ["the node ct200"]
    assert outcome.manifest.digest == staged(request_of(root, peer)).manifest.digest
    assert outcome.manifest.revision is not None


def test_a_part_is_given_as_asked(node, files):
    whole = files[SHARD]
    status, headers, body = ask(node, f"/tiny/{SHARD}", Range="bytes=1000-1999")

    assert (status, body) == (206, whole[1000:2000])
    assert headers["Content-Range"] == f"bytes 1000-1999/{len(whole)}"
    assert ask(node, f"/tiny/{SHARD}", Range="bytes=-10")[2] == whole[-10:]
    assert ask(node, f"/tiny/{SHARD}", Range="bytes=301000-")[2] == whole[301000:]
    assert ask(node, f"/tiny/{SHARD}")[::2] == (200, whole)
    assert ask(node, f"/tiny/{SHARD}", Range=f"bytes={len(whole)}-")[:2][0] == 416
    assert ask(node, f"/tiny/{SHARD}", **{"Range": "bytes=0-9", "If-Range": '"other"'})[::2] == (200, whole)


def test_a_head_has_no_body(node, files):
    status, headers, body = ask(node, f"/tiny/{SHARD}", "HEAD")

    assert (status, body) == (200, b"")
    assert headers["Content-Length"] == str(len(files[SHARD]))
    assert headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    "path",
    [
        "/", "/tiny", "/tiny/", "/tiny/../tiny.proof.json", "/tiny/%2e%2e/tiny.proof.json",
        "/tiny.proof.json", "/.model-stage/tiny/result.json", "/../../etc/passwd",
        "//etc/passwd", "/tiny//etc/passwd",
        "/tiny/%00", "/other.manifest.json", "/tiny/README.md", "/tiny.partial-0123456789ab/config.json",
    ],
)  # fmt: skip
def test_nothing_but_a_models_files_is_given(node, root, path):
    partial = root / "tiny.partial-0123456789ab"
    partial.mkdir()
    (partial / "config.json").write_text("{}")

    assert ask(node, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(node, method):
    assert ask(node, "/tiny/config.json", method)[0] == 501


def test_a_model_that_was_touched_is_not_given_until_it_is_proven_again(node, root, want):
    os.utime(root / "tiny/config.json")
    touched = ask(node, "/tiny/config.json")[0], ask(node, "/tiny.manifest.json")[0]
    run_stage(want())

    assert touched == (404, 404)
    assert ask(node, "/tiny/config.json")[0] == 200


def test_a_link_that_leads_elsewhere_is_not_followed(node, root, tmp_path):
    """Also when somebody exchanged the file between the proof and the reading: the proof sees the link."""
    (tmp_path / "secret").write_bytes(b"x" * 27)
    (root / "tiny/config.json").unlink()
    (root / "tiny/config.json").symlink_to(tmp_path / "secret")

    assert ask(node, "/tiny/config.json")[0] == 404


def test_several_nodes_read_at_the_same_time(node, files):
    got = []
    threads = [threading.Thread(target=lambda: got.append(ask(node, f"/tiny/{SHARD}")[2])) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert got == [files[SHARD]] * 12


def test_who_is_not_allowed_gets_403(want, root):
    run_stage(want())
    with ModelServer(root, "127.0.0.1:0", ["10.77.0.0/24", "::1"]) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        status, _, body = ask(server, "/tiny/config.json")
        server.shutdown()

        assert (status, body) == (403, b"this address may not ask here (--allow)\n")
        assert server.allows("10.77.0.21")
        assert server.allows("::ffff:10.77.0.21")
        assert not server.allows("10.77.1.21")


def test_the_verb_serves_until_sigterm(want, root, files):
    run_stage(want())
    command = [sys.executable, "-m", "model_stager", "serve", "--root", root, "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": str(ROLE / "files")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        line = running.stdout.readline()
        with urlopen(f"http://{line.split()[-1]}/tiny/config.json") as answer:
            content = answer.read()
        running.terminate()
        code = running.wait(5)

    assert line.startswith(f"the models in {root} are served on 127.0.0.1:")
    assert content == files["config.json"]
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listen", "nowhere"), "--listen 'nowhere' is no address and port, as 10.0.0.5:8377"),
        (
            ("--listen", "127.0.0.1:0", "--allow", "10.0.0.300"),
            "--allow '10.0.0.300' is no address or network",
        ),
        (("--listen", "203.0.113.9:80"), "can't listen on 203.0.113.9:80: Cannot assign requested address"),
        (("--listen", "127.0.0.1:0", "--root", "/no/such"), "/no/such, does not exist"),
    ],
)
def test_a_server_that_can_not_be_says_why(arguments, said):
    done = stager("serve", *arguments)

    assert done.returncode == 2
    assert said in done.stderr


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_range_is_never_beyond_the_file(first, last, size):
    start, end = parse_range(f"bytes={first}-{last}", size)

    assert end <= size
    assert start == first


@pytest.mark.parametrize("text", ["", "bytes=-", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b"])
def test_what_is_no_single_range_is_no_range(text):
    assert parse_range(text, 100) is None
