"""One model from a whole ladder: each rung gives what it has, and says why it gave no more."""

from model_stager.request import SourceSpec

from tests.sim.faulty_http import Fault
from tests.sim.hub import COMMIT

from .conftest import Cache, model_files, needed, published
from .network import files_server, http, hub, hub_server, request_of, staged

FIRST, SECOND, THIRD, FOURTH = (f"model-0000{number}-of-00004.safetensors" for number in range(1, 5))


def test_a_model_comes_from_four_sources_and_each_says_why_it_gave_no_more(tmp_path, root):
    """The cache has half, a disk one file that is cut, a server two, and the hub the rest."""
    files = model_files(shards=4)
    cache = Cache(tmp_path / "hub").add(files, commit=COMMIT)
    for name in (SECOND, THIRD, FOURTH):
        cache.blob(name, COMMIT).unlink()
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / SECOND).write_bytes(files[SECOND][:1000])
    with files_server(files, tmp_path) as server, hub_server(files) as the_hub:
        server.faults.append(Fault("status", path=f"*/{FOURTH}", status=404, method="*"))
        request = request_of(
            root,
            SourceSpec("hf_cache", cache.path),
            SourceSpec("directory", disk),
            http(server),
            hub(the_hub),
        )

        outcome = staged(request)

        assert published(request) == needed(files)
        assert {source: given["files"] for source, given in outcome.by_source.items()} == {
            "the HF cache": 3,
            f"the server {server.url}/tiny": 2,
            f"the hub {the_hub.url}": 1,
        }
        cached, disk_said, server_said = outcome.gone_on.split("; the ")
        assert cached.startswith(
            f"the HF cache: {SECOND} is a dangling link (its blob is gone), {THIRD} is a"
        )
        assert cached.endswith(" and 1 more")
        assert f"{SECOND} has 1000 bytes, the manifest says {len(files[SECOND])}" in disk_said
        assert f"it has no {THIRD}" in disk_said
        assert (
            server_said
            == f"server {server.url}/tiny: {server.url}/tiny/{FOURTH} answers 404: it is not there"
        )
        assert [seen.path.rpartition("?")[0] for seen in the_hub.cdn.seen] == [f"/blobs/{FOURTH}"]


def test_the_hub_is_not_asked_where_the_cache_has_all(tmp_path, root):
    files = model_files()
    cache = Cache(tmp_path / "hub").add(files)
    with hub_server(files) as the_hub:
        staged(request_of(root, SourceSpec("hf_cache", cache.path), hub(the_hub)))

        assert the_hub.seen == []


def test_another_version_on_the_hub_is_told_before_it_is_read(tmp_path, root):
    """The cache has an older commit under the same branch, and lacks a file of it."""
    older, newer = model_files(seed=1), model_files(seed=2)
    cache = Cache(tmp_path / "hub").add(older)
    cache.blob("model-00002-of-00003.safetensors").unlink()
    with hub_server(newer) as the_hub, files_server(older, tmp_path) as server:
        request = request_of(root, SourceSpec("hf_cache", cache.path), hub(the_hub), http(server))

        outcome = staged(request)

        assert published(request) == needed(older)
        assert "model-00002-of-00003.safetensors has sha256" in outcome.gone_on
        assert "at 5eed00000000, the manifest says" in outcome.gone_on
        assert the_hub.cdn.seen == []


def test_what_was_left_out_has_its_place_among_the_reasons(tmp_path, root):
    files = model_files()
    with files_server(files, tmp_path) as server:
        absent = SourceSpec("absent", name="the other nodes", reason="none of them has it")
        outcome = staged(request_of(root, absent, http(server)))

    assert outcome.gone_on == "the other nodes: none of them has it"
