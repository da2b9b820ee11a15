"""Models as the safetensors library writes them: what is whole is staged, each way to be torn is named."""

import json
import os

import numpy as np
import pytest
from model_stager.errors import BadRequestError, NoSourceError
from model_stager.request import UNNEEDED, SourceSpec
from model_stager.trusted import create_manifest
from safetensors import safe_open
from safetensors.numpy import save_file

from .conftest import published, run_stage

TOKENIZER = "tokenizer.json"
FIRST, SECOND = (f"model-{number:05d}-of-00002.safetensors" for number in (1, 2))
INDEX = "model.safetensors.index.json"


def write_model(folder, *, architecture="TinyForCausalLM", seed=5):
    """Two shards with their index, as transformers saves them."""
    folder.mkdir(parents=True)
    dice = np.random.default_rng(seed)
    weight_map = {}
    for shard, layers in ((FIRST, (0, 1)), (SECOND, (2, 3))):
        tensors = {
            f"model.layers.{layer}.{part}.weight": dice.standard_normal((128, 64)).astype(dtype)
            for layer in layers
            for part, dtype in (("mlp", np.float32), ("attention", np.float16))
        }
        save_file(tensors, folder / shard, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(tensors, shard))
    total = sum((folder / shard).stat().st_size for shard in (FIRST, SECOND))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "model_type": "tiny"}))
    (folder / TOKENIZER).write_text('{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}')
    return folder


def trust(folder):
    """The manifest of the whole model, kept beside the folder."""
    manifest = create_manifest(folder, "tiny", None, None)
    folder.with_name(f"{folder.name}.manifest.json").write_text(json.dumps(manifest.to_json()))


@pytest.fixture
def model(tmp_path):
    folder = write_model(tmp_path / "disk/model")
    trust(folder)
    return folder


def test_the_library_reads_from_memory_what_it_wrote_to_the_disk(model, want):
    run_stage(want(model))

    weight_map = json.loads((want().published / INDEX).read_text())["weight_map"]
    for name, shard in weight_map.items():
        with safe_open(model / shard, "np") as wrote, safe_open(want().published / shard, "np") as read:
            np.testing.assert_array_equal(wrote.get_tensor(name), read.get_tensor(name))


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def grow(path):
    with path.open("ab") as stream:
        stream.write(b"\0")


def same_size(path, start):
    path.write_bytes(start + b"\n" * (path.stat().st_size - len(start)))


def other_header(path):
    """The header of a file with one tensor more, on this file's data."""
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])
    last = max(info["data_offsets"][1] for key, info in header.items() if key != "__metadata__")
    header["model.layers.9.mlp.weight"] = {"dtype": "U8", "shape": [8], "data_offsets": [last, last + 8]}
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + path.read_bytes()[8 + length :])


TORN = {
    "cut": (cut, r"its safetensors header asks for \d+ bytes, it has \d+"),
    "longer": (grow, r"its safetensors header asks for \d+ bytes, it has \d+"),
    "header of more tensors": (other_header, r"its safetensors header asks for \d+ bytes, it has \d+"),
    "cut inside its header": (lambda path: os.truncate(path, 90), "too short for its safetensors header"),
    "empty": (lambda path: os.truncate(path, 0), "too short for its safetensors header"),
    "no JSON in its header": (
        lambda path: path.write_bytes(path.read_bytes()[:8] + b"#" + path.read_bytes()[9:]),
        "its safetensors header can't be read",
    ),
    "zeros": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "holds only zeros"),
    "HTML page": (lambda path: same_size(path, b"<!doctype html>\n<title>429</title>"), "is an HTML page"),
    "LFS pointer": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"),
        "is a Git LFS pointer",
    ),
}


@pytest.mark.parametrize(("tear", "said"), TORN.values(), ids=TORN)
def test_each_way_to_be_torn_is_named_before_a_byte_is_copied(model, want, tear, said):
    tear(model / SECOND)

    with pytest.raises(NoSourceError, match=f"the directory .*: {SECOND}.*{said}"):
        run_stage(want(model))

    assert not list(want().root.glob("*.partial-*"))


@pytest.mark.parametrize(("tear", "said"), TORN.values(), ids=TORN)
def test_a_torn_copy_is_never_trusted(model, tear, said):
    tear(model / SECOND)

    with pytest.raises(BadRequestError, match=f"can't be trusted: {SECOND}.*{said}"):
        create_manifest(model, "tiny", None, None)


@pytest.mark.parametrize(
    ("gone", "said"),
    [(SECOND, f"lacks {SECOND}, so no engine can load it"), ("config.json", "lacks config.json, so no")],
    ids=["a shard of the index", "config"],
)
def test_what_no_engine_can_do_without_is_missed_before_a_byte_is_copied(model, want, gone, said):
    (model / gone).unlink()
    trust(model)

    with pytest.raises(NoSourceError, match=said):
        run_stage(want(model))


def test_an_index_that_can_not_be_read_is_named(model, want):
    (model / INDEX).write_text('{"weight_map": ')
    trust(model)

    with pytest.raises(NoSourceError, match=r"lacks a \*\.safetensors\.index\.json that can be read"):
        run_stage(want(model))


def test_a_model_without_a_tokenizer_is_staged_and_said_to_have_none(model, want):
    (model / TOKENIZER).unlink()
    trust(model)

    outcome = run_stage(want(model))

    assert "no tokenizer is among its files" in outcome.sentence(want())
    assert "no tokenizer is among its files" in outcome.gone_on


@pytest.mark.parametrize(
    ("architecture", "file"),
    [
        ("LlamaForCausalLMEagle3", None),
        ("TinyForCausalLM", "tokenizer.model"),
        ("TinyForCausalLM", "tiktoken.model"),
        ("TinyForConditionalGeneration", "tekken.json"),
    ],
    ids=["a draft model", "sentencepiece", "tiktoken", "mistral's"],
)
def test_other_tokenizers_are_known_and_draft_models_need_none(tmp_path, want, architecture, file):
    folder = write_model(tmp_path / "disk/other", architecture=architecture)
    (folder / TOKENIZER).unlink()
    if file:
        (folder / file).write_text("x")
    trust(folder)

    assert run_stage(want(folder)).gone_on == ""


def test_a_damaged_index_of_one_source_does_not_condemn_the_model(model, tmp_path, want):
    """The first source's index is of the right size and no JSON; the second has it right."""
    bad = write_model(tmp_path / "bad/model")
    same_size(bad / INDEX, b'{"weight_map": ')
    bad.with_name("model.manifest.json").write_bytes(model.with_name("model.manifest.json").read_bytes())

    outcome = run_stage(want(bad, model))

    assert f"the directory {bad}: {INDEX}" in outcome.gone_on
    assert set(published(want())) == {FIRST, SECOND, INDEX, "config.json", TOKENIZER}


def test_a_shard_that_the_library_wrote_comes_from_several_sources(model, tmp_path, want):
    """A cache that lost a shard, a disk that has it."""
    half = write_model(tmp_path / "half/model")
    (half / SECOND).unlink()
    half.with_name("model.manifest.json").write_bytes(model.with_name("model.manifest.json").read_bytes())

    outcome = run_stage(want(SourceSpec("directory", half), model, exclude=UNNEEDED))

    assert outcome.by_source[f"the directory {half}"]["files"] == 4
    assert outcome.by_source[f"the directory {model}"]["files"] == 1
