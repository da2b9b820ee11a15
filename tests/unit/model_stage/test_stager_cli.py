"""The verbs as an operator types them: output, exit codes, and what is written."""

import json
import os

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_stager.cli import main
from model_stager.errors import BadRequestError
from model_stager.manifest import FileEntry, Manifest, parse_manifest, sorted_entries

from .conftest import REPO, ROOT, stager, tree

SCHEMA = json.loads((ROOT / "collector/schemas/manifest.schema.json").read_text())


@pytest.fixture
def wanted(root, cache):
    return ["--name", "tiny", "--repo", REPO, "--root", root, "--source", f"hf_cache={cache.path}"]


def test_check_predicts_writes_nothing_and_stage_agrees(wanted, root):
    check = stager("check", *wanted)
    untouched = tree(root)
    staged = stager("stage", *wanted, "--run", "r1")
    result = json.loads((root / ".model-stage/tiny/result.json").read_text())
    predicted = json.loads(check.stdout)

    assert untouched == {}
    assert predicted["action"] == result["action"] == "stage"
    assert predicted["digest"] == result["digest"]
    assert predicted["copy_bytes"] == result["copied_bytes"]
    assert (
        predicted["summary"] == f"tiny: would copy 903.5 kB from the HF cache into {root} (it is not there)"
    )
    assert staged.stdout.startswith("tiny: 903.5 kB from the HF cache in ")
    assert staged.stdout.endswith("sha256 of 5 files right\n")
    assert result["run"] == "r1"


def test_check_of_an_intact_model_writes_nothing_either(wanted, root):
    stager("stage", *wanted)
    before = tree(root)

    answer = json.loads(stager("check", *wanted).stdout)

    assert (answer["action"], answer["changes"]) == ("none", False)
    assert answer["summary"].startswith(f"tiny: already in {root}, proven intact (5 files, ")
    assert tree(root) == before


def test_verify_says_what_is_wrong(wanted, root):
    stager("stage", *wanted)
    right = stager("verify", "--name", "tiny", "--root", root)
    os.truncate(root / "tiny/config.json", 3)
    wrong = stager("verify", "--name", "tiny", "--root", root)
    deep = stager("verify", "--name", "tiny", "--root", root, "--deep")

    assert right.stdout.startswith(f"{root}/tiny: 5 files, 903.5 kB, unchanged since it was published (")
    assert (wrong.returncode, deep.returncode) == (6, 6)
    assert wrong.stderr == (
        f"model_stager: {root}/tiny is not intact: config.json has 3 bytes, 27 were published\n"
    )


def test_a_failure_is_one_line_and_a_result(wanted, root, cache):
    """A byte that no cheap look can see."""
    path = cache.blob("model-00001-of-00003.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\0")

    done = stager("stage", *wanted)
    result = json.loads((root / ".model-stage/tiny/result.json").read_text())

    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert result["ok"] is False
    assert f"model_stager: {result['error']['message']}\n" == done.stderr
    assert result["error"]["code"] == "no_source"


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (("--source", "s3=/x"), 2, "has an unknown kind: hf_cache=/path, directory=/path, http=URL or hub"),
        (("--source", "directory=x"), 2, "needs an absolute path"),
        (("--root", "/no/such"), 2, "the folder to stage into, /no/such, does not exist"),
        (("--revision", "v9"), 3, "has no revision 'v9'"),
        (("--manifest", "/no/such"), 2, "the manifest /no/such can't be read: No such file"),
        (("--name", "a/b"), 2, "'a/b' is no name for a model"),
    ],
    ids=["kind", "relative", "root", "revision", "manifest", "name"],
)
def test_bad_input_is_one_line_and_nothing_is_written(wanted, root, change, code, said):
    done = stager("stage", *wanted, *change)

    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert tree(root) == {}


def test_a_manifest_of_a_trusted_copy_stages_from_any_directory(wanted, root, tmp_path, files):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, content in files.items():
        (copy / name).write_bytes(content)
    created = stager("manifest", "create", "--from", copy, "--output", tmp_path / "m.json", "--name", "tiny")
    manifest = json.loads((tmp_path / "m.json").read_text())
    copy.rename(tmp_path / "moved")

    staged = stager(
        "stage", "--name", "tiny", "--root", root, "--manifest", tmp_path / "m.json",
        "--source", f"directory={tmp_path}/moved",
    )  # fmt: skip

    jsonschema.validate(manifest, SCHEMA)
    assert f"6 files, 903.5 kB, digest {manifest['digest']}" in created.stdout
    assert staged.returncode == 0
    assert f"from the directory {tmp_path}/moved" in staged.stdout


def test_a_torn_copy_is_not_to_be_trusted(tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")

    done = stager("manifest", "create", "--from", copy)

    assert done.returncode == 2
    assert "can't be trusted: model.safetensors: it is a Git LFS pointer" in done.stderr


def test_the_published_manifest_is_as_its_schema_says(wanted, root):
    stager("stage", *wanted)

    jsonschema.validate(json.loads((root / "tiny.manifest.json").read_text()), SCHEMA)


NAMES = st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6})?\.bin", fullmatch=True)
FILES = st.dictionaries(
    NAMES, st.tuples(st.integers(0, 10**12), st.binary(min_size=32, max_size=32)), min_size=1
)


def manifest_of(files, order=sorted):
    entries = [FileEntry(name, *(files[name][0], files[name][1].hex())) for name in order(files)]
    return Manifest("m", None, None, "trusted_copy", sorted_entries(entries))


@given(FILES)
def test_a_manifest_survives_being_written_and_read(files):
    manifest = manifest_of(files)

    assert parse_manifest(json.loads(json.dumps(manifest.to_json())), "here") == manifest
    jsonschema.validate(manifest.to_json(), SCHEMA)


@given(FILES)
def test_the_digest_is_of_the_contents_not_of_their_order(files):
    assert (
        manifest_of(files).digest
        == manifest_of(files, order=lambda names: sorted(names, reverse=True)).digest
    )


def whole():
    return manifest_of({"a.bin": (3, b"\1" * 32)}).to_json()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 2}, "has schema version 2, this program reads 1"),
        ({"schema": "other"}, "is no model manifest"),
        ({"files": []}, "names no file"),
        ({"digest": "0" * 64}, "has been edited: its digest is 0000"),
        (
            {"files": [{"name": "../a", "size_bytes": 1, "sha256": "0" * 64}]},
            "is no file name inside a model's",
        ),
        ({"files": [{"name": "a", "size_bytes": "1", "sha256": "0" * 64}]}, "a needs size_bytes"),
        ({"files": [{"name": "a"}]}, "'size_bytes' is missing"),
    ],
    ids=["newer", "other", "empty", "edited", "outside", "text", "half"],
)
def test_a_manifest_that_is_not_right_is_refused(change, said):
    with pytest.raises(BadRequestError, match=said):
        parse_manifest({**whole(), **change}, "here")


def test_progress_is_always_whole_json_and_ends_at_the_total(wanted, root):
    stager("stage", *wanted, "--run", "r1")

    progress = json.loads((root / ".model-stage/tiny/progress.json").read_text())

    assert progress["run"] == "r1"
    assert progress["bytes"] == progress["total_bytes"] > 0


@pytest.mark.parametrize("name", ["a.partial-0123456789ab", "a.manifest.json", "a.proof.json"])
def test_a_model_is_not_called_like_what_lies_beside_another(wanted, root, name):
    done = stager("stage", *wanted, "--name", name)

    assert done.returncode == 2
    assert "the stager has files and folders of such names" in done.stderr
    assert not list(root.iterdir())


@pytest.mark.parametrize(
    "option",
    [("--stall-s", "nan"), ("--stall-s", "0"), ("--patience-s", "-1"), ("--wait-s", "inf"),
     ("--threads", "0"), ("--reserve-bytes", "-5"), ("--threads", "two")],
)  # fmt: skip
def test_a_number_that_makes_no_sense_is_refused(wanted, root, option, capsys):
    with pytest.raises(SystemExit) as left:
        main(["stage", *map(str, wanted), *option])

    assert left.value.code == 2
    assert f"argument {option[0]}: " in capsys.readouterr().err
    assert not list(root.iterdir())


@pytest.mark.parametrize("spoil", ["dangling", "folder link", "not text"])
def test_a_copy_that_is_not_all_there_is_not_trusted(tmp_path, spoil):
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    if spoil == "not text":
        (folder / b"bad\xff.json".decode(errors="surrogateescape")).write_bytes(b"1")
    else:
        (folder / "more").symlink_to("nowhere" if spoil == "dangling" else "/etc")

    done = stager("manifest", "create", "--from", folder)

    assert done.returncode == 2
    assert {"dangling": "a dangling link", "folder link": "a link to a folder", "not text": "UTF-8"}[
        spoil
    ] in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_is_not_there_is_named(root):
    done = stager("verify", "--name", "nope", "--root", root)

    assert done.returncode == 2
    assert f"{root} has no nope" in done.stderr
