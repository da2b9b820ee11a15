"""Removal: only what the stager published, never what is read, never half in sight."""

import json
import mmap
import os
import subprocess
import sys
import time

import pytest
from model_stager import proof
from model_stager.errors import BadRequestError, BusyError
from model_stager.in_use import readers
from model_stager.inventory import STATE, folder_bytes, staged
from model_stager.lock import held
from model_stager.removal import clear_leftovers, find, remove_staged

from .conftest import ROLE, open_to_others, run_stage, stager

NOBODY = 65534


@pytest.fixture
def there(want):
    """A published model."""
    request = want()
    run_stage(request)
    return request


def test_a_published_model_is_removed_with_what_lies_beside_it(there, root):
    done = stager("remove", "--root", root, "--name", "tiny")

    assert done.returncode == 0
    assert f"{root}/tiny: removed, 917.5 kB are free again\n" == done.stdout
    assert sorted(path.name for path in root.iterdir()) == [STATE]
    assert not list((root / STATE / "tiny").glob("removed*"))


def test_what_it_says_to_have_freed_is_what_was_taken(there, root):
    one = find(root, "tiny")

    assert one.bytes == folder_bytes(root / "tiny")
    assert remove_staged(root, one) == one.bytes


@pytest.mark.parametrize(
    "make",
    [
        lambda root: (root / "theirs").mkdir(),
        lambda root: (root / "tiny.proof.json").unlink(),
        lambda root: (root / "tiny.manifest.json").write_text("{}"),
        lambda root: os.chown(root / "tiny.proof.json", NOBODY, NOBODY),
        lambda root: [(root / "tiny").rename(root / "real"), (root / "tiny").symlink_to(root / "real")],
    ],
    ids=["unknown", "no-proof", "no-manifest", "other-owner", "link"],
)
def test_what_the_stager_did_not_publish_stays(there, root, make):
    make(root)
    name = "theirs" if (root / "theirs").exists() else "tiny"

    with pytest.raises(BadRequestError, match="was not published by the stager"):
        find(root, name)

    done = stager("remove", "--root", root, "--name", name)
    assert done.returncode == 2
    assert (root / name).exists()
    assert staged(root) == [] or name == "theirs"


READ = """
import mmap, sys
stream = open(sys.argv[1], "rb")
{hold}
print("ready", flush=True)
sys.stdin.read()
"""
HOLDS = {
    "mapped": "mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ); stream.close()",
    "opened": "pass",
}


@pytest.fixture(params=HOLDS)
def engine(request, there):
    """Another process that has a shard mapped, or open, as an engine has."""
    path = next(there.published.glob("*.safetensors"))
    process = subprocess.Popen(
        [sys.executable, "-c", READ.format(hold=HOLDS[request.param]), path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    yield process
    process.communicate()


def test_a_model_that_a_process_reads_stays_and_the_process_is_named(engine, there, root):
    done = stager("remove", "--root", root, "--name", "tiny")

    assert done.returncode == 5
    assert f"tiny is in use by pid {engine.pid} ({sys.executable}" in done.stderr
    assert there.published.is_dir()

    engine.communicate()
    assert stager("remove", "--root", root, "--name", "tiny").returncode == 0


def test_the_readers_unit_is_named(tmp_path):
    """As /proc shows a process of an engine's unit, found by device and inode under another path."""
    folder, process = tmp_path / "model", tmp_path / "proc/77"
    folder.mkdir()
    (folder / "a").write_bytes(b"1")
    found = (folder / "a").stat()
    (process / "fd").mkdir(parents=True)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    (process / "maps").write_text(
        f"7f00-7f10 r--s 00000000 {device} {found.st_ino} /elsewhere/a b\n7f20-7f30 rw-p 00000000 00:00 0\n"
    )
    (process / "cmdline").write_bytes(b"python\0-m\0sglang.launch_server\0")
    (process / "cgroup").write_text("0::/system.slice/inference-tp1.service\n")

    (reader,) = readers(folder, proc=tmp_path / "proc")

    assert reader.sentence() == "pid 77 (python -m sglang.launch_server, inference-tp1.service)"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_one_who_may_not_look_does_not_guess():
    """Only root sees what others have open."""
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from model_stager.in_use import readers\n"
        "os.setuid(65534)\n"
        "readers(Path(os.__file__).parent / 'json')"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROLE / "files")},
    )

    assert "InUseError" in done.stderr
    assert "can't be seen by uid 65534" in done.stderr
    assert "run as root" in done.stderr


def test_a_model_in_work_stays(there, root):
    with held(there.state / "lock", "tiny", 0), pytest.raises(BusyError, match="another stager"):
        remove_staged(root, find(root, "tiny"))

    assert there.published.is_dir()


def test_a_removal_that_was_cut_short_is_finished_later(there, root):
    there.published.rename(there.state / "removed-77")

    assert clear_leftovers(root) > 900_000
    assert not (there.state / "removed-77").exists()


def test_an_unfinished_copy_of_a_model_that_is_not_in_work_may_go(there, root):
    partial = root / "tiny.partial-0123456789ab"
    partial.mkdir()
    (partial / "a").write_bytes(b"1" * 10_000)
    (root / "other.partial-0123456789ab").mkdir()  # nobody's state folder

    names = [one.name for one in staged(root)]
    assert sorted(names) == ["tiny", partial.name]
    with held(there.state / "lock", "tiny", 0):
        assert [one.name for one in staged(root)] == ["tiny"]
    assert "(unfinished, " in find(root, partial.name).sentence()
    remove_staged(root, find(root, partial.name))
    assert not partial.exists()
    assert there.published.is_dir()


def test_the_least_recently_asked_for_comes_first(want, root):
    for name, used in (("b", 3000), ("a", 2000), ("c", 1000)):
        run_stage(want(name=name))
        os.utime(root / f"{name}.proof.json", (used, used))

    assert [one.name for one in staged(root)] == ["c", "a", "b"]


def test_asking_for_a_model_renews_its_last_use_and_looking_does_not(there, root, cache):
    wanted = ["--name", "tiny", "--repo", "lab/tiny", "--root", root, "--source", f"hf_cache={cache.path}"]
    os.utime(there.proof_path, (1000, 1000))

    looked = stager("check", *wanted)
    after_look = there.proof_path.stat().st_mtime
    asked = stager("stage", *wanted)

    assert (looked.returncode, asked.returncode) == (0, 0)
    assert after_look == 1000
    assert time.time() - there.proof_path.stat().st_mtime < 60
    assert proof.read(there.proof_path)["manifest_digest"] == json.loads(looked.stdout)["digest"]


def test_another_users_model_is_removed_with_that_users_rights(there, root):
    """Root acts as the owner: in a world-writable root, no link may lead it elsewhere."""
    for path in (root / STATE, *(root / STATE).rglob("*"), root / "tiny", *(root / "tiny").iterdir()):
        os.chown(path, NOBODY, NOBODY)
    for path in (there.proof_path, there.manifest_path):
        os.chown(path, NOBODY, NOBODY)
    root.chmod(0o1777)
    open_to_others(root.parent)

    done = stager("remove", "--root", root, "--name", "tiny")

    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in root.iterdir()) == [STATE]
    assert (root / STATE / "tiny/lock").stat().st_uid == NOBODY


def test_a_mapping_outlives_the_removal_of_what_it_maps(there, root):
    """Should a reader slip in after the look: it keeps what it has, nothing crashes."""
    path = next(there.published.glob("*.safetensors"))
    content = path.read_bytes()
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        remove_staged(root, find(root, "tiny"))  # this process itself does not count
        assert mapped[:] == content
