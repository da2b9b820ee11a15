"""Growing a real tmpfs: as root, and as the root of a user namespace, which an unprivileged container has."""

import subprocess
import sys

import pytest
from model_stager.errors import NoRoomError
from model_stager.growing import grow

from .conftest import ROLE
from .small_tmpfs import MIB, mounted, options, size_mib


def test_it_grows_in_use_and_keeps_its_other_options(tmp_path):
    with mounted(tmp_path / "small", 4) as folder:
        before = set(options(folder))
        (folder / "there").write_bytes(b"1" * MIB)

        grow(str(folder), 8 * MIB)

        assert size_mib(folder) == 8
        assert {option for option in before if not option.startswith("size=")} <= set(options(folder))
        assert (folder / "there").stat().st_size == MIB


def test_the_root_of_a_user_namespace_may_grow_what_it_has_mounted(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    code = f"from model_stager.growing import grow; grow({str(folder)!r}, {8 * MIB})"
    script = (
        f"mount -t tmpfs -o size=4m,nosuid,nodev tmpfs {folder} && {sys.executable} -c '$CODE' "
        f"&& grep {folder} /proc/self/mounts"
    ).replace("'$CODE'", '"$CODE"')

    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": str(ROLE / "files"), "CODE": code},
    )

    if "unshare failed" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "size=8192k" in done.stdout
    assert "nosuid,nodev" in done.stdout


def test_who_may_not_is_told_what_to_do_by_hand(tmp_path):
    with pytest.raises(
        NoRoomError, match=r"could not be made larger \(.*do it by hand \(mount -o remount,size=8"
    ):
        grow(str(tmp_path), 8 * MIB)
