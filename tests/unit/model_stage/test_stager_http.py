"""A folder on a web server as a source: what a server can do wrong, and what becomes of it."""

import socket
import time

import pytest
from model_stager.errors import NoSourceError
from model_stager.request import SourceSpec

from tests.sim.faulty_http import Fault

from .conftest import published
from .network import SHARD, SILENT, files_server, http, request_of, staged

SHARD_PATH = f"/tiny/{SHARD}"


@pytest.fixture
def server(files, tmp_path):
    with files_server(files, tmp_path) as server:
        yield server


def test_a_model_comes_from_a_web_server_by_its_manifest(server, root, files):
    request = request_of(root, http(server), repo=None)

    outcome = staged(request)

    assert published(request) == dict(sorted(files.items()))
    assert list(outcome.by_source) == [f"the server {server.url}/tiny"]
    assert outcome.manifest.origin == "trusted_copy"
    assert all(seen.headers["accept-encoding"] == "identity" for seen in server.seen)


def test_connections_are_kept(server, root):
    ports = set()
    note = server.note

    def note_port(handler):
        ports.add(handler.client_address[1])
        return note(handler)

    server.note = note_port
    staged(request_of(root, http(server)))

    assert len(server.seen) > 12
    assert len(ports) <= 4, "two looks and two workers"


def test_an_intact_model_needs_only_the_manifest(server, root):
    staged(request_of(root, http(server)))
    server.seen.clear()

    outcome = staged(request_of(root, http(server)))

    assert outcome.action == "none"
    assert [seen.path for seen in server.seen] == ["/tiny.manifest.json"]


def refused(server, root, files, fields):
    """What is said of the server that can't give one file; a directory gives that file then."""
    copy = root.parent / "served" / "tiny"
    request = request_of(root, http(server), SourceSpec("directory", copy), **fields)
    outcome = staged(request)
    assert published(request) == dict(sorted(files.items()))
    assert outcome.by_source[f"the directory {copy}"]["files"] == 1
    assert outcome.gone_on.startswith(f"the server {server.url}/tiny: {SHARD} ")
    return outcome.gone_on


REFUSED = {
    "refused": (Fault("status", status=403), "answers 403: it does not let this machine or account have it"),
    "gone between": (Fault("status", status=404), "answers 404: it is not there"),
    "broken": (Fault("status", status=500), "answers 500 (Internal Server Error)"),
    "busy for long": (
        Fault("status", status=429, headers={"Retry-After": "3600"}),
        "answers 429 (Too Many Requests, and says to wait 3600 s)",
    ),
    "circle": (Fault("loop"), "redirects in a circle: http://127.0.0.1"),
    "to a file": (Fault("elsewhere", target="file:///etc/passwd"), "which is no http or https URL"),
    "other offset": (Fault("wrong_offset"), "was asked for bytes 0-301116 and gives bytes 1-301116/301117"),
    "other size": (Fault("wrong_total"), "has 301118 bytes at http://127.0.0.1"),
    "other length": (Fault("wrong_length"), "announces 301112 bytes for a part of 301117"),
    "compressed": (Fault("gzip"), "compresses it (gzip), though it was asked not to"),
    "a page": (Fault("html"), "gives an HTML page in its place"),
    "no HTTP": (Fault("no_http"), "answers in a way that is no HTTP (BadStatusLine)"),
    "stalls": (Fault("stall", at=1000), "gave no byte for "),
    "endless headers": (Fault("slow_headers"), "gave no byte for "),
    "cut each time": (Fault("short", at=0), "has dropped the connection"),
    "goes on": (Fault("longer", at=9), "goes on after byte 301117 at http://127.0.0.1"),
    "flipped byte": (Fault("corrupt"), "the manifest says"),
}


@pytest.mark.parametrize(("fault", "said"), REFUSED.values(), ids=REFUSED)
def test_a_server_that_can_not_give_a_file_is_told_and_left(server, root, files, fault, said):
    fault.path, fault.seen = SHARD_PATH + "*", 0
    server.faults[:] = [fault]

    reason = refused(server, root, files, SILENT if fault.name in ("stall", "slow_headers") else {})

    assert said in reason
    assert "?" not in reason, "no query is shown"


SURVIVED = {
    "ignores Range": Fault("no_range"),
    "ignores Range, in chunks": Fault("chunked"),
    "reset": Fault("reset", at=200_000, times=2),
    "closed": Fault("short", at=100_000, times=2),
    "busy": Fault("status", status=429, headers={"Retry-After": "0"}, times=2),
    "overloaded": Fault("status", status=503, headers={"Retry-After": "0"}, times=2),
    "knows no HEAD": Fault("status", status=405, method="HEAD"),
    "busy when asked first": Fault("status", status=503, method="HEAD"),
}


@pytest.mark.parametrize("fault", SURVIVED.values(), ids=SURVIVED)
def test_what_a_server_does_for_a_while_is_survived(server, root, files, fault):
    fault.path, fault.seen = SHARD_PATH, 0
    server.faults[:] = [fault]
    request = request_of(root, http(server))

    outcome = staged(request)

    assert published(request) == dict(sorted(files.items()))
    assert list(outcome.by_source) == [f"the server {server.url}/tiny"]


def test_a_copy_goes_on_where_the_connection_broke(server, root):
    server.faults[:] = [Fault("reset", path=SHARD_PATH, at=200_000, times=1)]

    staged(request_of(root, http(server)))

    asked = [seen.range for seen in server.seen if seen.path == SHARD_PATH and seen.method == "GET"]
    assert asked == ["bytes=0-301116", "bytes=200000-301116"]


def test_a_date_to_wait_for_is_honoured(server, root):
    soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 2))
    busy = Fault("status", path=SHARD_PATH, status=429, headers={"Retry-After": soon}, times=1)
    server.faults[:] = [busy]
    started = time.monotonic()

    staged(request_of(root, http(server), patience_s=4.0))

    assert busy.seen == 2
    assert 0.5 < time.monotonic() - started < 5


def test_a_manifest_that_is_not_there_is_named(server, root):
    del server.files["tiny.manifest.json"]

    with pytest.raises(
        NoSourceError, match=rf"{server.url}/tiny\.manifest\.json answers 404: it is not there"
    ):
        staged(request_of(root, http(server)))


def test_a_manifest_that_is_a_page_is_named(server, root):
    server.faults[:] = [Fault("html", path="*.manifest.json")]

    with pytest.raises(NoSourceError, match=r"tiny\.manifest\.json is no JSON"):
        staged(request_of(root, http(server)))


def test_a_server_that_is_away_is_asked_once_not_for_every_file(root, files, tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with files_server(files, tmp_path):
        copy = SourceSpec("directory", tmp_path / "served" / "tiny")
        connected = []
        connect = socket.create_connection
        monkeypatch.setattr(
            socket,
            "create_connection",
            lambda *given, **more: (connected.append(given), connect(*given, **more))[1],
        )
        outcome = staged(request_of(root, SourceSpec("http", url=f"http://127.0.0.1:{port}/tiny"), copy))

    assert outcome.by_source == {copy.label: {"files": 6, "bytes": outcome.manifest.total_bytes}}
    assert f"127.0.0.1:{port} refuses the connection: nothing listens there" in outcome.gone_on
    assert len(connected) <= 2, "once in each of the two looks"


def test_a_proxy_of_another_kind_is_named(root, monkeypatch):
    monkeypatch.setenv("http_proxy", "socks5://user:secret@127.0.0.1:1080")

    with pytest.raises(NoSourceError, match=r"names a socks5 proxy \(127\.0\.0\.1:1080\)") as caught:
        staged(request_of(root, SourceSpec("http", url="http://models.invalid/tiny")))

    assert "secret" not in str(caught.value)


def test_a_server_that_falls_silent_is_not_waited_for_with_every_file(server, root, tmp_path):
    server.faults[:] = [Fault("slow_headers", path="/tiny/*", method="HEAD")]
    copy = SourceSpec("directory", tmp_path / "served" / "tiny")
    started = time.monotonic()

    outcome = staged(request_of(root, http(server), copy, **SILENT))

    assert list(outcome.by_source) == [copy.label]
    assert time.monotonic() - started < 3 * SILENT["stall_s"], "one wait, not six"


def test_a_name_that_can_not_be_resolved_is_named(root):
    with pytest.raises(NoSourceError, match=r"the name no-such-host\.invalid can't be resolved"):
        staged(request_of(root, SourceSpec("http", url="http://no-such-host.invalid/tiny")))


def test_plain_http_where_tls_is_expected_is_named(server, root):
    url = server.url.replace("http://", "https://")

    with pytest.raises(NoSourceError, match="does not speak TLS as expected"):
        staged(request_of(root, SourceSpec("http", url=f"{url}/tiny")))


def test_a_proxy_of_the_environment_is_used_and_its_exceptions_honoured(server, root, files, monkeypatch):
    """The tests' server in the proxy's place: it sees whole URLs, and who is asked for."""
    host = "http://models.invalid"
    server.files.update({f"{host}/{path}": data for path, data in server.files.items()})
    route = server.RequestHandlerClass.route

    def route_whole(handler, fault):
        handler.path = handler.path.removeprefix(host)
        route(handler, fault)

    monkeypatch.setattr(server.RequestHandlerClass, "route", route_whole)
    monkeypatch.setenv("http_proxy", server.url.replace("http://", "http://user:pass@"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    staged(request_of(root, SourceSpec("http", url=f"{host}/tiny")))
    through = {seen.path.partition("/tiny")[0] for seen in server.seen}
    credentials = {seen.headers.get("proxy-authorization") for seen in server.seen}
    server.seen.clear()
    staged(request_of(root, http(server), name="direct"))

    assert through == {host}
    assert credentials == {"Basic dXNlcjpwYXNz"}
    assert not any(seen.path.startswith("http") for seen in server.seen)
