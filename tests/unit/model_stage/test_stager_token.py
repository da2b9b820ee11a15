"""The hub's token: who may read its file, where it is sent, and that nobody else ever sees it."""

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from model_stager.errors import BadRequestError
from model_stager.secret import read_token

from tests.sim.faulty_http import Fault, FilesServer

from .conftest import REPO, ROLE, stager
from .network import hub_server

TOKEN = "hf_SecretOfTheTests"


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


def arguments(server, root, token_file):
    return [
        "--name", "tiny", "--repo", REPO, "--root", root, "--source", f"hub={server.url}",
        "--token-file", token_file, "--stall-s", "10", "--patience-s", "1",
    ]  # fmt: skip


def everything_written(root):
    return b"\n".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "fault",
    [
        None,
        Fault("status", status=401, method="*"),
        Fault("status", path="/blobs/*", status=500),
        Fault("no_http", method="*"),
        Fault("html", path="*/revision/*"),
        Fault("loop", method="*"),
    ],
    ids=["all right", "refused", "broken", "no HTTP", "a page", "circle"],
)
def test_nothing_that_is_written_has_the_token(files, root, token_file, fault):
    with hub_server(files, tokens={TOKEN: True}) as server:
        if fault:
            server.faults.append(fault)
            server.cdn.faults.append(fault)
        done = stager("stage", *arguments(server, root, token_file))
        result = json.loads((root / ".model-stage/tiny/result.json").read_text()) if not fault else None

    assert (done.returncode == 0) is (fault is None), done.stderr
    assert result is None or result["ok"]
    assert TOKEN not in done.stdout + done.stderr
    assert TOKEN.encode() not in everything_written(root)


def test_neither_process_list_nor_environment_has_the_token(files, root, token_file):
    with hub_server(files, tokens={TOKEN: True}) as server:
        server.cdn.faults.append(Fault("stall", at=1000))
        command = [sys.executable, "-m", "model_stager", "stage"]
        command += map(str, arguments(server, root, token_file))
        environment = {**os.environ, "PYTHONPATH": str(ROLE / "files")}
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as running:
            deadline = time.monotonic() + 10
            while not server.cdn.seen and time.monotonic() < deadline:
                time.sleep(0.02)
            own = [Path(f"/proc/{running.pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
            running.terminate()

    assert b"--token-file" in own[0]
    assert TOKEN.encode() not in own[0] + own[1]


def test_only_the_endpoint_gets_the_token(files, root, token_file):
    with hub_server(files, tokens={TOKEN: True}) as server:
        done = stager("stage", *arguments(server, root, token_file))

        assert done.returncode == 0, done.stderr
        assert {seen.headers.get("authorization") for seen in server.seen} == {f"Bearer {TOKEN}"}
        assert {seen.headers.get("authorization") for seen in server.cdn.seen} == {None}


@pytest.mark.parametrize("path", ["/api/*", "*/resolve/*"])
def test_a_redirect_to_another_host_does_not_take_the_token_along(files, root, token_file, path):
    with hub_server(files, tokens={TOKEN: True}) as server, FilesServer({}) as other:
        server.faults.append(Fault("elsewhere", path=path, method="*", target=f"{other.url}/catch"))
        stager("stage", *arguments(server, root, token_file))

        assert other.seen
        assert not any("authorization" in seen.headers for seen in other.seen)


def test_a_next_page_on_another_host_does_not_get_the_token(files, root, token_file):
    with hub_server(files, tokens={TOKEN: True}, page=2) as server, FilesServer({}) as other:
        server.list_url = other.url
        stager("stage", *arguments(server, root, token_file))

        assert other.seen
        assert not any("authorization" in seen.headers for seen in other.seen)


def test_a_web_server_gets_no_token(files, root, token_file):
    with FilesServer({}) as server:
        stager(
            "stage", "--name", "tiny", "--root", root, "--source", f"http={server.url}/tiny",
            "--token-file", token_file,
        )  # fmt: skip

        assert server.seen
        assert not any("authorization" in seen.headers for seen in server.seen)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_can_read_is_refused(token_file, mode):
    token_file.chmod(mode)

    with pytest.raises(BadRequestError, match=f"can be read by others: chmod 600 {token_file}"):
        read_token(token_file, "https://hub.example")


USER_OBJ, USER, GROUP_OBJ, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
NOBODY = 0xFFFFFFFF


def access_list(*entries):
    """A POSIX access list as the kernel keeps it."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_a_credential_of_systemd_is_taken(token_file):
    """It gives one user the right by an access list, whose mask shows as the group's right."""
    acl = access_list(
        (USER_OBJ, 4, NOBODY), (USER, 4, 65534), (GROUP_OBJ, 0, NOBODY), (MASK, 4, NOBODY), (OTHER, 0, NOBODY)
    )
    try:
        os.setxattr(token_file, "system.posix_acl_access", acl)
    except OSError as exc:
        pytest.skip(f"no access lists on this filesystem: {exc.strerror}")

    assert token_file.stat().st_mode & 0o777 == 0o440
    assert read_token(token_file, "https://hub.example").reveal() == TOKEN


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"one\ntwo", b"\xff\xfe", b"a" * 2000])
def test_what_is_no_token_is_refused_without_showing_it(token_file, content):
    token_file.write_bytes(content)

    with pytest.raises(BadRequestError, match=f"the token file {token_file} holds no token: one line"):
        read_token(token_file, "https://hub.example")


def test_a_token_shows_itself_to_nobody(token_file):
    token = read_token(token_file, "https://hub.example")

    assert TOKEN not in f"{token} {token!r}"
    assert token.headers("https://hub.example/x") == {"Authorization": f"Bearer {TOKEN}"}
    assert token.headers("https://hub.example:8443/x") == {}
    assert token.headers("http://hub.example/x") == {}
    assert token.headers("https://hub.example.evil/x") == {}


def test_a_token_file_that_is_not_there_is_named(files, root, tmp_path):
    with hub_server(files) as server:
        done = stager("stage", *arguments(server, root, tmp_path / "none"))

    assert done.returncode == 2
    assert f"the token file {tmp_path}/none can't be read: No such file or directory" in done.stderr


def test_a_password_in_a_url_is_refused(root):
    done = stager("stage", "--name", "tiny", "--root", root, "--source", "http=http://u:secret@host/tiny")

    assert done.returncode == 2
    assert "has a password or a query in its URL" in done.stderr
    assert "secret" not in done.stderr
