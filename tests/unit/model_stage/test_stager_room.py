"""Room: the limit that is too small is named before the first byte."""

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_stager.errors import BadRequestError, NoRoomError
from model_stager.inventory import Staged
from model_stager.room import Asked, Room, measure_room, mount_of, on_disk, require_room

from .conftest import ROLE, Cache, model_files

GB = 10**9
PLENTY = Room("tmpfs", 100 * GB, 10_000, 100 * GB, 100 * GB)


def ask(room, tmp_path, others=(), **fields):
    fields = {"need_bytes": 52 * GB, "need_files": 12, **fields}
    require_room(Asked("qwen", tmp_path, **fields), room, list(others))


def test_plenty_of_room_is_enough(tmp_path):
    ask(PLENTY, tmp_path)


@pytest.mark.parametrize(
    ("short", "said"),
    [
        ({"free_bytes": 32 * GB}, r"\(tmpfs\) has 32\.0 GB free, the model needs 52\.0 GB"),
        ({"free_inodes": 20}, r"has 20 free inodes, the model needs 28"),
        (
            {"memory_available": 40 * GB},
            r"the machine has 40\.0 GB of memory available, the model needs 52\.0 GB",
        ),
        ({"cgroup_free": 48 * GB}, r"the container's memory limit leaves 48\.0 GB, the model needs 52\.0 GB"),
    ],
    ids=["tmpfs", "inodes", "memory", "container"],
)
def test_the_limit_that_is_too_small_is_named(tmp_path, short, said):
    with pytest.raises(NoRoomError, match=said):
        ask(replace(PLENTY, **short), tmp_path)


def replace(room, **fields):
    return Room(**{**room.__dict__, **fields})


def test_the_engines_own_memory_is_left_free(tmp_path):
    room = replace(PLENTY, cgroup_free=60 * GB)
    ask(room, tmp_path)

    with pytest.raises(NoRoomError, match=r"needs 52\.0 GB in .* and 16\.0 GB are reserved for the engine"):
        ask(room, tmp_path, reserve_bytes=16 * GB)


def test_a_reserve_beyond_what_there_is_does_not_hide_what_there_is(tmp_path):
    said = r"has 100\.0 GB of memory available, the model needs 52\.0 GB in .* and 900\.0 GB are reserved"
    with pytest.raises(NoRoomError, match=said) as caught:
        ask(PLENTY, tmp_path, reserve_bytes=900 * GB)

    assert (caught.value.free, caught.value.needed) == (100 * GB, 952 * GB)


def test_what_could_be_removed_is_named(tmp_path):
    old = Staged("kimi", "kimi", 60 * GB, time.time() - 3 * 86_400)

    with pytest.raises(NoRoomError) as caught:
        ask(replace(PLENTY, free_bytes=GB), tmp_path, others=[old])

    assert "; old models there: kimi (60.0 GB, last used 3 days ago). " in str(caught.value)
    assert "model_stage_grow_allowed lets it grow" in str(caught.value)
    assert str(caught.value).endswith(
        "model_stage_remove_allowed lets old models be removed, least recently used first"
    )
    assert caught.value.data() == {
        "limit": "filesystem",
        "needed": 52 * GB,
        "free": GB,
        "removable": ["kimi"],
    }


def test_memory_does_not_matter_on_a_disk(tmp_path):
    ask(replace(PLENTY, filesystem="ext4", memory_available=GB, cgroup_free=GB), tmp_path)


def test_the_tightest_limit_above_the_process_counts(tmp_path):
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/system.slice/unit.service\n")
    (proc / "self/mountinfo").write_text("22 1 0:1 / / rw - ext4 /dev/sda rw\n")
    (proc / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 64 kB\n")
    unit = cgroups / "system.slice" / "unit.service"
    unit.mkdir(parents=True)
    limits = {unit: ("max", "500"), unit.parent: ("9000", "1000"), cgroups: ("8000", "5000")}
    for folder, (limit, used) in limits.items():
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
    (cgroups / "memory.stat").write_text("anon 1\ninactive_file 600\nactive_file 400\nshmem 9\n")

    room = measure_room(tmp_path, proc=proc, cgroups=cgroups)

    assert room.cgroup_free == 8000 - 5000 + 1000
    assert room.memory_available == 64 * 1024


def test_no_limit_is_no_limit(tmp_path):
    room = measure_room(tmp_path, cgroups=tmp_path)

    assert room.cgroup_free is None
    assert room.free_bytes > 0


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/dev/shm", "tmpfs"),
        ("/dev", "devtmpfs"),
        ("/srv/a b", "nfs4"),
        ("/srv", "ext4"),
        ("/dev/shm2", "devtmpfs"),
    ],
)
def test_the_filesystem_is_that_of_the_longest_mount_point(path, kind):
    mountinfo = (
        "22 1 8:1 / / rw - ext4 /dev/sda rw\n"
        "23 22 0:5 / /dev rw shared:2 - devtmpfs udev rw\n"
        "24 23 0:6 / /dev/shm rw - tmpfs tmpfs rw\n"
        "25 22 0:7 / /srv/a\\040b rw - nfs4 server:/x rw\n"
    )

    assert mount_of(type(ROLE)(path), mountinfo)[1] == kind


@given(st.integers(0, 10**12))
def test_whole_pages_are_counted(size):
    assert size <= on_disk(size) < size + 4096
    assert on_disk(size) % 4096 == 0


def test_a_root_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadRequestError, match=f"{tmp_path}/no, does not exist"):
        measure_room(tmp_path / "no")


def in_small_tmpfs(tmp_path, size, script):
    """Run a script in a mount namespace of its own, in which `root` is a small tmpfs."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = f"mount -t tmpfs -o size={size} tmpfs {folder} && {script.format(root=folder)}"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": str(ROLE / "files")},
    )


def test_a_real_tmpfs_that_is_too_small_stays_empty(tmp_path):
    cache = Cache(tmp_path / "hub").add(model_files(size=1_000_000))
    wanted = f"--name tiny --repo lab/tiny --source hf_cache={cache.path} --root {{root}}"

    done = in_small_tmpfs(
        tmp_path,
        "2m",
        f"{sys.executable} -m model_stager stage {wanted}; code=$?; find {{root}} -type f; exit $code",
    )

    assert done.returncode == 4
    assert "small (tmpfs) has 2.1 MB free, the model needs 3.1 MB" in done.stderr
    assert "safetensors" not in done.stdout


def test_a_tmpfs_that_fills_up_midway_is_named_with_the_file(tmp_path):
    """Room was there at first: the check is bypassed, as if another program had been faster."""
    cache = Cache(tmp_path / "hub").add(model_files(size=1_000_000))
    code = (
        "import sys, model_stager.plan as plan, model_stager.staging as staging\n"
        "staging.require_possible = lambda *a, **k: dict()\n"
        "from model_stager.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    script = tmp_path / "late.py"
    script.write_text(code)

    done = in_small_tmpfs(
        tmp_path,
        "2m",
        f"{sys.executable} {script} stage --name tiny --repo lab/tiny --source hf_cache={cache.path} "
        "--root {root}; code=$?; cat {root}/.model-stage/tiny/result.json; exit $code",
    )

    assert done.returncode == 4
    assert "No space left on device after" in done.stderr
    assert ".safetensors" in done.stderr
    assert '"code": "no_room"' in done.stdout, "whoever follows must learn of it"


def test_a_tmpfs_that_is_full_already_says_what_is_needed(tmp_path):
    cache = Cache(tmp_path / "hub").add(model_files(size=100_000))
    wanted = f"--name tiny --repo lab/tiny --source hf_cache={cache.path} --root {{root}}"

    done = in_small_tmpfs(
        tmp_path,
        "2m",
        f"head -c 3M /dev/zero > {{root}}/theirs; {sys.executable} -m model_stager stage {wanted}",
    )

    assert done.returncode == 4
    assert "has 0 B free, the model needs 368.6 kB" in done.stderr


def test_inodes_that_are_used_up_are_named(tmp_path):
    cache = Cache(tmp_path / "hub").add(model_files(size=100_000))
    wanted = f"--name tiny --repo lab/tiny --source hf_cache={cache.path} --root {{root}}"

    done = in_small_tmpfs(tmp_path, "9m,nr_inodes=2", f"{sys.executable} -m model_stager stage {wanted}")

    assert done.returncode == 4
    assert "free inodes, the model needs 21" in done.stderr


@pytest.mark.parametrize("more", [0, 4, 12])
def test_what_lies_beside_the_model_has_room_too(tmp_path, more):
    """Else the whole model would be there, and the record that proves it would not."""
    files = model_files(size=200_000)
    cache = Cache(tmp_path / "hub").add(files)
    size = sum(on_disk(len(content)) for name, content in files.items() if name != "README.md")
    wanted = f"--name tiny --repo lab/tiny --source hf_cache={cache.path} --root {{root}}"

    done = in_small_tmpfs(
        tmp_path,
        f"{size + 4096 * more}",
        f"{sys.executable} -m model_stager stage {wanted}; code=$?; ls {{root}}; exit $code",
    )

    assert (done.returncode, "tiny" in done.stdout) in ((0, True), (4, False)), done.stderr
