"""nginx as the second server: real ranges, real refusals, nothing of ours on the other side."""

import re

import pytest
from model_stager.errors import NoSourceError
from model_stager.request import SourceSpec

from tests.sim.nginx import PROGRAM, nginx

from .conftest import model_files, published, safetensors
from .network import SHARD, request_of, staged, write

FIRST = "model-00001-of-00003.safetensors"

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="nginx is not installed (Debian: nginx-light)")


@pytest.fixture
def folder(tmp_path, files):
    return write(tmp_path / "served" / "tiny", files).parent


@pytest.fixture
def url(tmp_path, folder):
    with nginx(folder, tmp_path / "nginx") as url:
        yield url


def asked(tmp_path, name):
    """Method, status and bytes sent of every request for a file."""
    lines = (tmp_path / "nginx" / "access.log").read_text().splitlines()
    return [re.search(r'"(\w+) \S+ \S+" (\d+) (\d+)', line).groups() for line in lines if f"/{name} " in line]


def test_a_model_comes_from_nginx_by_range(url, root, files, tmp_path):
    request = request_of(root, SourceSpec("http", url=f"{url}/tiny"))

    staged(request)

    assert published(request) == dict(sorted(files.items()))
    assert ("GET", "206", "301117") in asked(tmp_path, SHARD)


def test_a_large_file_is_read_by_several_workers(url, root, files, folder, tmp_path):
    """Several workers on one large file: each byte is asked for once."""
    files[FIRST] = safetensors(bytes(range(256)) * (400 << 10))
    write(folder / "large", files)
    request = request_of(root, SourceSpec("http", url=f"{url}/large"), name="large")

    staged(request)

    ranges = [
        int(sent)
        for method, _, sent in asked(tmp_path, "model-00001-of-00003.safetensors")
        if method == "GET"
    ]
    assert published(request) == dict(sorted(files.items()))
    assert len(ranges) > 1
    assert sum(ranges) == len(files[FIRST])


def test_where_ranges_are_ignored_a_file_comes_as_one_stream(url, root, files, tmp_path):
    request = request_of(root, SourceSpec("http", url=f"{url}/whole/tiny"))

    staged(request)

    assert published(request) == dict(sorted(files.items()))
    assert {status for method, status, _ in asked(tmp_path, SHARD) if method == "GET"} == {"200"}


def test_a_slow_server_is_slow_not_silent(url, root, folder):
    files = model_files(shards=1, size=500_000)
    write(folder / "slow", files)
    request = request_of(root, SourceSpec("http", url=f"{url}/slow/slow"), stall_s=1.5, name="slow")

    outcome = staged(request)

    assert published(request) == dict(sorted(files.items()))
    assert outcome.seconds > request.stall_s


def test_nginx_compresses_nothing_that_was_asked_for_as_it_is(url, root, files):
    request = request_of(root, SourceSpec("http", url=f"{url}/gzip/tiny"))

    staged(request)

    assert published(request) == dict(sorted(files.items()))


def test_a_file_that_nginx_has_not_is_named(url, root, folder):
    (folder / "tiny" / SHARD).unlink()

    with pytest.raises(NoSourceError, match=rf"{url}/tiny/{SHARD} answers 404: it is not there"):
        staged(request_of(root, SourceSpec("http", url=f"{url}/tiny")))

    assert not (root / "tiny").exists()


def test_a_folder_in_a_files_place_is_named(url, root, folder):
    """The redirect into the folder is followed, and its list refused."""
    (folder / "tiny" / SHARD).unlink()
    (folder / "tiny" / SHARD).mkdir()

    with pytest.raises(NoSourceError, match=rf"{url}/tiny/{SHARD}/ answers 403"):
        staged(request_of(root, SourceSpec("http", url=f"{url}/tiny")))
