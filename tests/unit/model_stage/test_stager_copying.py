"""One file from several sources by several workers: who brings what, who is left, and what is said of it."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from model_stager import landing, transfer
from model_stager.errors import NoSourceError, SourceFlakyError, SourceUnusableError
from model_stager.manifest import FileEntry
from model_stager.origins import LocalFile
from model_stager.progress import Reporter
from model_stager.transfer import Patience

from .conftest import ROLE
from .copy_kit import MB, Given, Kit, Network, write_weights

SIZE = 24 * MB + 123


@pytest.fixture(autouse=True)
def small_extents(monkeypatch):
    """What takes gigabytes otherwise shows with a few megabytes."""
    monkeypatch.setattr(landing, "PART", 2 * MB)
    for name in ("LOCAL_EXTENT", "LEAST_EXTENT", "LARGEST_EXTENT"):
        monkeypatch.setattr(transfer, name, 2 * MB)
    monkeypatch.setattr(transfer, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path, write_weights(tmp_path / "weights", SIZE))


@pytest.fixture
def right(kit):
    return (kit.folder / "weights").read_bytes()


def local(kit, label="local"):
    return Given(label, LocalFile(kit.folder / "weights"))


def network(kit, on_read=None, label="network", **fields):
    return Given(label, Network(kit.folder / "weights", on_read, **fields))


# Several workers on a file


def test_an_idle_worker_helps_with_a_file_in_work(kit, right):
    """Two workers must be inside the same file at the same time, or the barrier breaks."""
    both = threading.Barrier(2, timeout=10)
    met = threading.Event()

    def meet(_position, _view):
        if not met.is_set():
            both.wait()
            met.set()

    kit.run(network(kit, meet), threads=2)

    assert kit.target.read_bytes() == right
    assert kit.tally.by_source == {"network": {"files": 1, "bytes": SIZE}}


def test_what_lands_ahead_of_the_hash_is_hashed_in_its_turn(kit, right):
    """The first extent comes last: all the others wait for it, and the sum is right all the same."""
    rest = threading.Event()

    def first_waits(position, _view):
        if position == 0:
            assert rest.wait(10)
        if position > SIZE - 2 * MB:
            rest.set()

    kit.run(network(kit, first_waits), threads=3)

    assert kit.target.read_bytes() == right


def test_a_worker_on_its_own_goes_through_the_file_in_order(kit):
    source = network(kit)

    kit.run(source, threads=1)

    starts = [start for start, _ in source.locate(None).opened]
    assert starts == sorted(starts)


def test_an_empty_file_needs_no_source(tmp_path):
    kit = Kit(tmp_path, write_weights(tmp_path / "weights", 0)).run()

    assert kit.target.read_bytes() == b""


def test_an_empty_file_with_the_sum_of_another_is_refused(tmp_path):
    entry = write_weights(tmp_path / "weights", 0)

    with pytest.raises(NoSourceError, match="weights should be empty and have sha256 00000"):
        Kit(tmp_path, FileEntry(entry.name, 0, "0" * 64)).run()


# Sources that fail


def test_a_source_that_ends_midway_is_continued_by_the_next(kit, right):
    half = kit.folder / "half"
    half.write_bytes(right[: 3 * MB])

    kit.run(Given("first", LocalFile(half)), local(kit), threads=1)

    assert f"first: weights ends at byte {3 * MB}, it should have {SIZE}" in str(kit.reasons)
    assert kit.bytes_of("first") == 3 * MB
    assert kit.bytes_of("local") == SIZE - 3 * MB
    assert kit.target.read_bytes() == right


def test_a_wrong_beginning_from_one_source_does_not_condemn_the_next(kit, right):
    half = kit.folder / "half"
    half.write_bytes(b"\1" * 3 * MB)

    kit.run(Given("first", LocalFile(half)), local(kit), threads=1)

    assert "sha256" not in str(kit.reasons)
    assert kit.tally.by_source == {"local": {"files": 1, "bytes": SIZE}}
    assert kit.target.read_bytes() == right


def test_a_file_that_is_cut_while_it_is_read_is_continued_by_the_next_source(kit, right):
    """The real thing: the file is shorter from one read to the next."""
    victim = kit.folder / "victim"
    victim.write_bytes(right)

    def cut(position, _view):
        if position >= 4 * MB and victim.exists():
            os.truncate(victim, 4 * MB)

    kit.run(Given("disk", Network(victim, cut)), local(kit), threads=1)

    assert f"disk: weights ends at byte {4 * MB}, it should have {SIZE}" in str(kit.reasons)
    assert kit.target.read_bytes() == right


def test_a_file_that_is_removed_while_it_is_read_is_continued_by_the_next_source(kit, right):
    victim = kit.folder / "victim"
    victim.write_bytes(right)

    kit.run(Given("disk", Network(victim, lambda *_: victim.unlink(missing_ok=True))), local(kit), threads=2)

    assert "disk: weights can't be opened: No such file or directory" in str(kit.reasons)
    assert kit.bytes_of("disk") >= 2 * MB, "what was open could be read to its end"
    assert kit.target.read_bytes() == right


def test_a_failing_disk_is_named_with_the_byte(kit, right, monkeypatch):
    """The kernel's answer for a bad sector, or for a mount whose server has forgotten the file."""
    preadv, victim = os.preadv, kit.folder / "victim"
    victim.write_bytes(right)
    bad = victim.stat().st_ino

    def failing(descriptor, buffers, offset):
        if os.fstat(descriptor).st_ino == bad and offset >= 2 * MB:
            raise OSError(116 if offset > 4 * MB else 5, os.strerror(116 if offset > 4 * MB else 5))
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)

    kit.run(Given("disk", LocalFile(victim)), local(kit), threads=1)

    assert f"disk: weights can't be read at byte {2 * MB}: Input/output error" in str(kit.reasons)
    assert kit.target.read_bytes() == right


def test_when_no_source_is_left_every_reason_is_said(kit):
    def refuse(position, _view):
        raise SourceUnusableError(f"is refused at byte {position}")

    gone = Given("gone", LocalFile(kit.folder / "gone"))
    with pytest.raises(NoSourceError) as caught:
        kit.run(gone, network(kit, refuse), threads=1)

    assert str(caught.value) == (
        "no source could give weights: gone: weights can't be opened: No such file or directory; "
        "network: weights is refused at byte 0"
    )


# Sources that may recover


def test_a_dropped_connection_goes_on_from_where_it_stopped(kit, right):
    drops = iter((3 * MB, 9 * MB, 15 * MB))
    due = next(drops)

    def drop(position, view):
        nonlocal due
        if position >= due:
            due = next(drops, SIZE)
            raise SourceFlakyError("stopped: connection reset by peer")
        return view[: due - position]

    source = network(kit, drop)
    kit.run(source, threads=1)

    assert str(kit.reasons) == ""
    assert kit.target.read_bytes() == right
    assert kit.tally.copied_bytes == SIZE, "no byte twice"


def test_retry_after_is_honoured(kit):
    times = []

    def busy(_position, _view):
        times.append(time.monotonic())
        if len(times) == 1:
            raise SourceFlakyError("HTTP 429: too many requests", retry_after_s=0.4)

    kit.run(network(kit, busy), threads=1)

    assert times[1] - times[0] >= 0.4
    assert kit.target.is_file()


def test_a_wait_beyond_our_patience_is_left_to_the_next_source(kit, right):
    def busy(_position, _view):
        raise SourceFlakyError("gets HTTP 429: too many requests", retry_after_s=3600)

    kit.run(network(kit, busy), local(kit), threads=2)

    assert str(kit.reasons) == (
        "network: weights gets HTTP 429: too many requests "
        "(not asked again: it wants 3600.0 s of waiting, 60.0 s of 60.0 s are left)"
    )
    assert kit.target.read_bytes() == right


def test_a_server_that_only_fails_is_asked_a_few_times(kit, right):
    asked = []

    def fail(position, _view):
        asked.append(position)
        raise SourceFlakyError("gets HTTP 503")

    kit.run(network(kit, fail), local(kit), threads=1)

    assert len(asked) == 1 + transfer.TRIES
    assert str(kit.reasons) == "network: weights gets HTTP 503 (asked again 6 times)"
    assert kit.target.read_bytes() == right


def test_waiting_ends_with_the_patience_even_while_bytes_come(kit, right):
    """A server that drops the connection after each few bytes is left in the end."""

    def drop(position, view):
        if position % MB:
            raise SourceFlakyError("stopped")
        return view[: 64 << 10]

    kit.run(network(kit, drop), local(kit), threads=1, patience_s=0.05)

    assert "network: weights stopped (asked again" in str(kit.reasons)
    assert kit.bytes_of("network") < MB
    assert kit.target.read_bytes() == right


def test_patience_grows_its_waits_and_starts_anew_when_bytes_come():
    patience = Patience(60)

    waits = [patience.wait_s(None) for _ in range(3)]
    patience.renew()

    assert waits == [0.01, 0.02, 0.04]
    assert patience.wait_s(None) == 0.01
    assert patience.wait_s(59.0) == 59.0
    assert patience.wait_s(2.0) is None


# A server that ignores ranges


def test_a_server_that_ignores_ranges_is_read_as_one_stream(kit, right):
    source = network(kit, ranges=False)

    kit.run(source, threads=3)

    assert str(kit.reasons) == ""
    assert kit.target.read_bytes() == right
    assert source.locate(None).opened[-1] == (0, SIZE)


def test_one_stream_reads_past_what_is_verified_and_does_not_write_it_again(kit, right):
    half = kit.folder / "half"
    half.write_bytes(right[: 10 * MB])
    source = network(kit, ranges=False)

    kit.run(Given("first", LocalFile(half)), source, threads=1)

    assert kit.bytes_of("first") == 10 * MB
    assert kit.bytes_of("network") == SIZE - 10 * MB
    assert kit.target.read_bytes() == right


def test_one_stream_that_drops_begins_again_at_its_start(kit, right):
    dropped = []

    def drop_once(position, _view):
        if position > 8 * MB and not dropped:
            dropped.append(position)
            raise SourceFlakyError("stopped: connection reset by peer")

    kit.run(network(kit, drop_once, ranges=False), threads=2)

    assert dropped
    assert kit.target.read_bytes() == right


# Sources that fall silent


def test_a_silent_source_is_left_for_the_next_one_and_can_never_write_again(kit, right):
    """The reader wakes up long after, with wrong bytes in its hands."""
    wake, woken = threading.Event(), threading.Event()

    def hang(position, view):
        if position >= 4 * MB:
            wake.wait(20)
            view[:] = b"\1" * len(view)
            woken.set()

    kit.run(network(kit, hang), local(kit), threads=2, stall_s=0.3)
    wake.set()
    woken.wait(5)
    time.sleep(0.05)

    assert "weights gave no byte for 0.3 s, it is at byte 4194304" in str(kit.reasons)
    assert kit.target.read_bytes() == right


def test_a_source_that_never_answers_when_asked_for_a_file_is_left(kit, right):
    class Mute(Given):
        def locate(self, entry):  # noqa: ARG002 - it never gets so far
            time.sleep(5)

    kit.run(Mute("mute", None), local(kit), threads=1, stall_s=0.2, patience_s=0.1)

    assert str(kit.reasons) == "mute: weights: no answer for 0.2 s"
    assert kit.target.read_bytes() == right


def test_a_slow_source_is_not_a_silent_one(kit, right):
    def slow(position, view):
        if position < 2 * MB:
            time.sleep(0.12)
        return view[: 512 << 10]

    kit.run(network(kit, slow), threads=1, stall_s=0.3)

    assert str(kit.reasons) == ""


def test_a_thread_that_hangs_for_ever_does_not_keep_the_process(kit):
    """A pipe that nobody writes to: opening it hangs in the kernel, as a dead mount does."""
    os.mkfifo(kit.folder / "hangs")
    script = (
        "import sys, pathlib\n"
        "from copy_kit import *\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "kit = Kit(folder, FileEntry('weights', *hash_file(folder / 'weights')))\n"
        "hangs, whole = LocalFile(folder / 'hangs'), LocalFile(folder / 'weights')\n"
        "kit.run(Given('hangs', hangs), Given('whole', whole), stall_s=0.3)\n"
        "print(kit.reasons, kit.target.read_bytes() == (folder / 'weights').read_bytes())\n"
    )
    here = f"{ROLE / 'files'}:{os.path.dirname(__file__)}"  # noqa: PTH120 - text for a path of Python's
    started = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-c", script, kit.folder],
        env={**os.environ, "PYTHONPATH": here},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )

    assert done.stdout == "hangs: weights gave no byte for 0.3 s, it is at byte 0 True\n"
    assert time.monotonic() - started < 10


def test_a_signal_is_heeded_while_a_source_hangs(kit):
    def hang(_position, _view):
        kit.stop.set()
        time.sleep(20)

    started = time.monotonic()
    with pytest.raises(Exception, match="stopped"):
        kit.run(network(kit, hang), threads=2)

    assert time.monotonic() - started < 5


# Sums that are wrong


def test_a_wrong_sum_from_a_disk_names_the_file_and_both_sums(kit, right):
    bad = kit.folder / "elsewhere"
    bad.write_bytes(right[:-1] + b"\0")

    kit.run(Given("disk", LocalFile(bad)), local(kit))

    assert f"disk: weights ({bad}) has sha256 " in str(kit.reasons)
    assert str(kit.reasons).endswith(f"the manifest says {kit.entry.sha256}")
    assert not kit.bad_files.folder.exists(), "it is there to be looked at already"
    assert kit.target.read_bytes() == right


def test_a_wrong_file_from_the_network_is_kept_and_its_kind_is_named(kit, right):
    page = kit.folder / "page"
    page.write_bytes((b"<!DOCTYPE html><html>" + b" " * SIZE)[:SIZE])
    kit.entry = FileEntry("model.safetensors", SIZE, kit.entry.sha256)
    kit.target = kit.folder / "landed/model.safetensors"

    kit.run(Given("network", Network(page)), local(kit))

    kept = kit.bad_files.folder / "model.safetensors"
    assert kept.read_bytes() == page.read_bytes()
    assert (
        f"the manifest says {kit.entry.sha256}: it is an HTML page, most likely an error that was saved as "
        f"the file; it is kept as {kept}"
    ) in str(kit.reasons)
    assert kit.target.read_bytes() == right


def test_without_room_for_a_second_one_the_wrong_file_is_not_kept(kit, right, monkeypatch):
    bad = kit.folder / "elsewhere"
    bad.write_bytes(right[:-1] + b"\0")
    kit.bad_files._reserve_bytes = 1 << 60  # for an engine of that size
    monkeypatch.setattr("model_stager.room.Room.in_memory", True)

    kit.run(Given("network", Network(bad)), local(kit))

    assert "; there is no room to keep it for a look" in str(kit.reasons)
    assert not kit.bad_files.folder.exists()
    assert kit.target.read_bytes() == right


# What is told


def test_progress_and_result_count_right_with_several_workers_and_sources(kit, right):
    half = kit.folder / "half"
    half.write_bytes(right[: 7 * MB])

    kit.run(Given("first", LocalFile(half)), local(kit), threads=3)

    counted = kit.tally.by_source
    assert sum(given["bytes"] for given in counted.values()) == SIZE
    assert kit.tally.landed_bytes == kit.tally.total_bytes == SIZE
    assert kit.tally.current() is None, "nothing is in work any more"


def test_progress_is_right_while_several_workers_are_in_a_file(kit):
    """Read in the middle, as whoever follows does."""
    path, seen = kit.folder / "progress.json", []
    reporter = Reporter(path, "tiny", "r1")

    def look(position, _view):
        if not position:
            reporter.write("copying", kit.tally)
        elif position > 10 * MB and not seen:
            time.sleep(0.01)
            reporter.write("copying", kit.tally)
            seen.append(json.loads(path.read_text()))

    kit.run(network(kit, look), threads=3)

    progress = seen[0]
    assert (progress["file"], progress["source"]) == ("weights", "network")
    assert 0 < progress["bytes"] < progress["total_bytes"] == SIZE
    left = progress["total_bytes"] - progress["bytes"]
    assert progress["seconds_left"] == pytest.approx(left / progress["rate_bytes_s"], abs=0.1)


def test_progress_goes_back_when_a_sum_was_wrong(kit, right):
    bad = kit.folder / "elsewhere"
    bad.write_bytes(right[:-1] + b"\0")
    landed = []

    kit.run(Given("disk", LocalFile(bad)), network(kit, lambda *_: landed.append(kit.tally.landed_bytes)))

    assert landed[0] < SIZE
    assert kit.tally.landed_bytes == SIZE
    assert kit.tally.by_source == {"network": {"files": 1, "bytes": SIZE}}
