"""The folder for results on the node: tried before anything is installed there."""

import importlib.util
import json
from pathlib import Path

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args
from bench_runner.files import MIN_FREE_BYTES

from tests.unit.bench_runner.conftest import ROOT

if str(ROOT / "roles/bench_run/module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(ROOT / "roles/bench_run/module_utils"))

from ansible.module_utils.bench_run import folder

MODULE = ROOT / "roles/bench_run/library/bench_run_folder.py"

DISK = "29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
MEMORY = DISK + "31 29 0:26 / {} rw,nosuid - tmpfs tmpfs rw,size=1024k\n"


def test_a_folder_that_is_still_to_be_made_is_tried_where_it_would_be(tmp_path):
    assert folder.problem(tmp_path / "a/b", DISK) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_memory_is_refused(tmp_path):
    assert folder.problem(tmp_path / "bench", MEMORY.format(tmp_path)) == (
        f"the results folder {tmp_path}/bench is on the tmpfs {tmp_path}, which a reboot empties;"
        " name another folder (bench_run_dir)"
    )


def test_a_folder_that_takes_no_file_is_refused():
    # The kernel lets nobody, not even root, make a file here.
    assert folder.problem(Path("/proc/bench"), DISK) == (
        "the results folder /proc/bench can't be written: /proc takes no file (No such file or directory);"
        " free it, or name another folder (bench_run_dir)"
    )


@pytest.mark.parametrize("place", ["file", "file/below", "dangling"])
def test_what_is_no_folder_is_named(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")

    assert f"{tmp_path / place.split('/')[0]} takes no file" in folder.problem(tmp_path / place, DISK)


def test_too_little_room_is_refused(tmp_path):
    said = folder.problem(tmp_path, DISK, min_free_bytes=1 << 60)

    assert f"{tmp_path} has " in said
    assert f"MiB free, a campaign needs at least {1 << 40} MiB; make room or name another" in said


def test_the_limit_is_the_runners_own():
    assert folder.MIN_FREE_BYTES == MIN_FREE_BYTES


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/var/lib/bench", ("/", "ext4")),
        ("/mnt/a b/x", ("/mnt/a b", "tmpfs")),
        ("/mnt/a bc", ("/", "ext4")),
        ("/over", ("/over", "xfs")),
    ],
)
def test_the_filesystem_is_that_of_the_longest_and_last_mount(path, found):
    mounts = MEMORY.format("/mnt/a\\040b") + "32 29 0:27 / /over rw - tmpfs tmpfs rw\n"
    mounts += "33 29 254:1 / /over rw - xfs /dev/vdb rw\n"

    assert folder.filesystem_of(Path(path), mounts) == found


def test_the_module_says_where_and_how_much_or_refuses_with_the_nodes_name(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("bench_run_folder", MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def call(root):
        with patch_module_args({"root": root, "node": "ct200"}), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    assert call("/proc/bench")["msg"].startswith("ct200: the results folder /proc/bench can't be written")
    # Wherever tests may write is either a disk or not; both are an answer.
    answer = call(str(tmp_path / "bench"))
    said = answer.get("msg") or answer["summary"]
    assert f"{tmp_path}/bench" in said
    assert not answer.get("changed")
    assert list(tmp_path.iterdir()) == []
