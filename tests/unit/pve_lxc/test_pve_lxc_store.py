"""Writing under Proxmox's lock, against a concurrent change, with a way back."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from ansible.module_utils.pve_lxc.backups import KEEP, Backups, Records
from ansible.module_utils.pve_lxc.errors import PveLxcError, Refused
from ansible.module_utils.pve_lxc.store import ContainerFile, digest


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "200.conf"
    path.write_bytes(b"arch: amd64\n")
    return ContainerFile(path, tmp_path / "lock")


def test_a_file_is_replaced_whole_and_nothing_else_is_left(file):
    file.replace(b"arch: amd64\n", b"arch: arm64\n")
    assert file.read() == b"arch: arm64\n"
    assert [path.name for path in file.path.parent.iterdir()] == ["200.conf"]


def test_a_concurrent_change_is_refused_and_kept(file):
    file.path.write_bytes(b"arch: i386\n")
    with pytest.raises(Refused, match=f"digest {digest(b'arch: i386' + bytes([10]))[:12]}.*Run again"):
        file.replace(b"arch: amd64\n", b"arch: arm64\n")
    assert file.read() == b"arch: i386\n"
    assert [path.name for path in file.path.parent.iterdir()] == ["200.conf"]


def test_a_rename_under_a_reader_is_waited_out(file):
    hidden = file.path.with_name("hidden")
    file.path.rename(hidden)
    later = threading.Timer(0.2, hidden.rename, [file.path])
    later.start()
    assert file.read() == b"arch: amd64\n"
    later.join()


def test_a_container_that_is_not_there_is_named(tmp_path):
    with pytest.raises(Refused, match=r"201\.conf does not exist: is 201 the id"):
        ContainerFile(tmp_path / "201.conf", tmp_path).read()


def test_another_file_name_is_refused(tmp_path):
    with pytest.raises(Refused, match=r"is named <vmid>\.conf"):
        ContainerFile(tmp_path / "qemu.cfg", tmp_path)


def test_a_held_lock_ends_with_its_path_and_leaves_the_file(file):
    other = ContainerFile(file.path, file.lock_path.parent)
    held = pytest.raises(PveLxcError, match=r"pve-config-200\.lock was held .* for 0\.2 s")
    with other.locked(), held, file.locked(0.2):
        pytest.fail("two holders at once")
    with file.locked(0.2):
        assert file.lock_path.exists()


def test_a_lock_that_can_not_be_opened_is_told_with_what_it_takes(file):
    file.lock_path.parent.write_text("no folder")

    with (
        pytest.raises(PveLxcError, match=r"pve-config-200\.lock can't be opened .*root on the host"),
        file.locked(),
    ):
        pytest.fail("locked without a lock")


def test_the_lock_is_waited_for(file):
    release = threading.Event()

    def hold():
        with ContainerFile(file.path, file.lock_path.parent).locked():
            release.wait(5)

    holder = threading.Thread(target=hold)
    holder.start()
    time.sleep(0.1)
    threading.Timer(0.2, release.set).start()
    with file.locked(5):
        assert release.is_set()
    holder.join()


WRITE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pve_lxc.store import ContainerFile
try:
    ContainerFile(Path(sys.argv[2]), Path("/run")).replace(b"x\\n", b"y\\n")
except Exception as exc:
    print(exc)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount needs root")
def test_a_folder_that_cannot_be_written_leaves_the_file(tmp_path):
    """As `/etc/pve` is while the cluster has no quorum."""
    utils = Path(__file__).resolve().parents[3] / "roles/pve_lxc/module_utils"
    script = (
        'mount -t tmpfs none "$0" && echo x >"$2" && mount -o remount,ro "$0" && python3 -c "$3" "$1" "$2"'
    )
    command = ["unshare", "-m", "bash", "-c", script, tmp_path, utils, tmp_path / "200.conf", WRITE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "can't be written (Read-only file system) and is as it was" in done.stdout, done.stderr


def test_backups_say_from_what_to_what(tmp_path):
    backups = Backups(tmp_path / "backups", "200")
    path = backups.keep(b"old\n", b"new\n")
    assert path.read_bytes() == b"old\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (backups.all()[-1].before, backups.all()[-1].after) == (
        digest(b"old\n")[:12],
        digest(b"new\n")[:12],
    )


def test_restore_goes_back_once_and_then_changes_nothing(tmp_path):
    backups = Backups(tmp_path, "200")
    backups.keep(b"old\n", b"new\n")
    assert backups.to_restore(b"new\n") == b"old\n"
    assert backups.to_restore(b"old\n") == b"old\n"


def test_restore_over_a_later_change_needs_force(tmp_path):
    backups = Backups(tmp_path, "200")
    backups.keep(b"old\n", b"new\n")
    with pytest.raises(Refused, match="changed since our own change"):
        backups.to_restore(b"newer\n")
    assert backups.to_restore(b"newer\n", force=True) == b"old\n"


def test_a_named_backup_is_restored(tmp_path):
    backups = Backups(tmp_path, "200")
    first = backups.keep(b"1\n", b"2\n")
    backups.keep(b"2\n", b"3\n")
    assert backups.to_restore(b"2\n", first.name) == b"1\n"
    with pytest.raises(Refused, match="has no backup named x"):
        backups.to_restore(b"2\n", "x")


def test_only_the_newest_backups_are_kept(tmp_path):
    backups = Backups(tmp_path, "200")
    for number in range(KEEP + 3):
        backups.keep(f"{number}\n".encode(), b"")
    assert len(backups.all()) == KEEP


def test_records_are_written_in_order_and_read_back(tmp_path):
    records = Records(tmp_path / "deep/majors.json")
    assert records.read() == {}
    records.write({"511": ["nvidia-uvm"], "195": ["nvidiactl", "nvidia"]})
    assert list(records.read().items()) == [("195", ["nvidia", "nvidiactl"]), ("511", ["nvidia-uvm"])]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"schema_version": 1}',
        '{"schema_version": 9, "majors": {}}',
        '{"schema_version": 1, "majors": {"x": []}}',
    ],
)
def test_records_that_cannot_be_read_are_named(tmp_path, text):
    path = tmp_path / "majors.json"
    path.write_text(text)
    with pytest.raises(PveLxcError, match=r"majors\.json"):
        Records(path).read()
