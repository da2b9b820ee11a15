"""A model behind servers of the tests' own, and the sources that lead there."""

import json
from contextlib import contextmanager

from model_stager.request import Request, SourceSpec
from model_stager.trusted import create_manifest

from tests.sim.faulty_http import FilesServer
from tests.sim.hub import HubServer, Model

from .conftest import REPO, run_stage

SHARD = "model-00002-of-00003.safetensors"


def write(folder, files):
    """A plain copy, with its manifest beside it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    manifest = create_manifest(folder, folder.name, None, None)
    folder.with_name(f"{folder.name}.manifest.json").write_text(json.dumps(manifest.to_json()))
    return folder


@contextmanager
def files_server(files, tmp_path):
    """`/tiny/FILE` and `/tiny.manifest.json`."""
    copy = write(tmp_path / "served" / "tiny", files)
    content = {f"tiny/{name}": data for name, data in files.items()}
    content["tiny.manifest.json"] = copy.with_name("tiny.manifest.json").read_bytes()
    with FilesServer(content) as server:
        yield server


SILENT = {"stall_s": 0.6}  # where a test's server is silent on purpose


def hub_server(files, **fields):
    return HubServer(Model(files, **fields))


def http(server):
    return SourceSpec("http", url=f"{server.url}/tiny")


def hub(server):
    return SourceSpec("hub", url=server.url)


def request_of(root, *sources, **fields):
    """With little patience; a silence that no test makes is long, as the machine may be busy."""
    fields = {"name": "tiny", "root": root, "repo": REPO, "stall_s": 10.0, "patience_s": 1.0, **fields}
    return Request(sources=sources, **fields)


def staged(request, **options):
    """Stage with the request's own limits."""
    return run_stage(request, stall_s=request.stall_s, patience_s=request.patience_s, **options)
