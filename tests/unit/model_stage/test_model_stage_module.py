"""The role's module, run like a function: it predicts, starts the real stager, and follows it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from .conftest import ROLE, Cache, model_files, needed, tree
from .playing import model, program_lookup

from ansible.module_utils.model_stage import command, runner, state  # isort: skip - the path is set by `playing`


def follow(play, models, first, **arguments):
    """Call again with what the first call knew, as an `until` loop does."""
    for _ in range(400):
        later = play(models, pending=first["pending"], done=first["models"], **arguments)
        if later["finished"]:
            return later
    raise AssertionError("it never ended")


def test_check_mode_predicts_the_run_agrees_and_the_next_changes_nothing(play, cache, root, tmp_path, files):
    models = [model("tiny", cache)]
    predicted = play(models, check=True)
    untouched = tree(tmp_path / "shm"), (tmp_path / "program").exists()
    first, second = play(models), play(models)

    assert untouched == ({}, False)
    assert (predicted["changed"], first["changed"], second["changed"]) == (True, True, False)
    assert (
        predicted["summary"] == f"tiny: would copy 903.5 kB from the HF cache into {root} (it is not there)"
    )
    assert first["finished"]
    assert first["summary"].endswith("sha256 of 5 files right")
    assert second["summary"].startswith(f"tiny: already in {root}, proven intact (5 files, ")
    assert first["paths"] == second["paths"] == {"tiny": f"{root}/tiny"}
    assert first["digests"] == second["digests"] == predicted["digests"]
    assert first["recovery"]["staged"][0]["copied_bytes"] == sum(map(len, needed(files).values()))
    assert first["waited_s"]["copy"] > 0
    assert "recovery" not in predicted, "a rehearsal is no part of the record"
    assert {path.name: path.read_bytes() for path in (root / "tiny").iterdir()} == needed(files)


def test_several_models_are_staged_in_their_order(play, cache, root):
    models = [model("target", cache), model("draft", cache, include=["config.json"])]

    result = play(models)

    assert [record["model"] for record in result["models"]] == ["target", "draft"]
    assert sorted(result["paths"]) == ["draft", "target"]
    assert "; draft: 27 B from the HF cache" in result["summary"]
    assert result["digests"]["target"] != result["digests"]["draft"]


def test_only_the_model_that_is_not_intact_is_staged(play, cache, root):
    models = [model("a", cache), model("b", cache)]
    play(models)
    os.truncate(root / "a/config.json", 1)

    result = play(models)

    assert result["changed"]
    assert [record["action"] for record in result["models"]] == ["stage", "none"]


@pytest.fixture
def large(tmp_path):
    return Cache(tmp_path / "large").add(model_files(shards=4, size=30_000_000))


def test_a_copy_is_followed_over_several_calls(play, large, root):
    models = [model("first", large), model("second", large)]
    first = play(models, wait_s=0.01)
    seen = [first["progress"]]
    later = first
    while not later["finished"]:
        later = play(models, pending=first["pending"], done=first["models"], wait_s=0.02)
        seen.append(later.get("progress", ""))

    assert first["changed"]
    assert not later["changed"], "the first call has reported the change"
    assert [record["model"] for record in later["models"]] == ["first", "second"]
    assert any(line.startswith("first: ") and line.endswith("; 1 more to come") for line in seen)
    assert not any("pending" in path.name for path in root.iterdir())


def test_a_lost_connection_stops_nothing_and_the_next_run_attaches(play, large):
    models = [model("tiny", large)]
    lost = play(models, wait_s=0.01)
    began = time.monotonic()

    again = play(models, wait_s=0.01)
    later = again if again["finished"] else follow(play, models, again, wait_s=0.05)

    assert later["finished"]
    assert later["models"][0]["action"] in ("stage", "none")
    assert later["waited_s"]["copy"] <= time.monotonic() - began, "only what this run has waited"
    if not again["finished"]:
        assert again["pending"][0]["run"] == lost["pending"][0]["run"], "the same run, not a second one"


def test_a_killed_stager_is_reported_and_the_next_run_goes_on(play, large, root):
    models = [model("tiny", large)]
    for _ in range(10):  # it may be faster than we are
        first = play(models, wait_s=0.01)
        if not first["finished"]:
            os.kill(int((root / ".model-stage/tiny/lock").read_text()), signal.SIGKILL)
            failed = follow(play, models, first, wait_s=0.5)
            if failed.get("failed"):
                break
        (root / "tiny").rename(root / "away")

    assert failed["msg"].startswith("tiny: the stager of tiny ended without a result")
    assert failed["msg"].endswith("run again to go on")
    assert play(models)["finished"]


def test_all_reasons_are_given_at_once_and_nothing_is_written(play, cache, root, tmp_path):
    wrong = [
        model("a", cache, revision="v9"),
        model("b", Cache(tmp_path / "none")),
        model("c", cache, sources=[{"kind": "directory", "path": "/no/such"}]),
        model("good", cache),
    ]

    result = play(wrong)

    lines = result["msg"].splitlines()
    assert [line.split(":")[0] for line in lines] == ["a", "b", "c"]
    assert "has no revision 'v9'" in lines[0]
    assert "there is no folder" in lines[1]
    assert "/no/such does not exist" in lines[2]
    assert result["finished"], "an until loop must not try again"
    assert tree(root) == {}
    assert not (tmp_path / "program").exists()


def test_models_must_fit_together(play, cache, root, monkeypatch):
    """Each alone would fit."""
    free = os.statvfs(root)
    free = free.f_bavail * free.f_frsize
    path = cache.blob("model-00001-of-00003.safetensors")
    listing = next((cache.repo / "trees").glob("*.json"))
    half = int(free * 0.6)
    text = json.loads(listing.read_text())
    text["files"]["model-00001-of-00003.safetensors"].update(size=half, lfs_size=half)
    listing.write_text(json.dumps(text))
    header = json.dumps({"w": {"data_offsets": [0, half - 1000]}}).encode().ljust(992)
    with path.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header + b"\1")
        stream.truncate(half)

    one, two = play([model("a", cache)], check=True), play([model("a", cache), model("b", cache)], check=True)

    assert one["changed"]
    assert two["msg"].startswith("a and b: ")
    assert " free, the models need " in two["msg"]


def test_a_manifest_of_the_controller_is_used(play, cache, root, tmp_path):
    play([model("tiny", cache)])
    manifest = json.loads((root / "tiny.manifest.json").read_text())
    source = [{"kind": "directory", "path": str(root / "tiny")}]

    result = play([model("copy", cache, repo=None, sources=source)], manifests={"copy": manifest})

    assert result["digests"]["copy"] == manifest["digest"]


def test_a_full_check_follows_and_changes_nothing_when_all_is_right(play, cache):
    play([model("tiny", cache)])

    result = play([model("tiny", cache)], deep=True)

    assert not result["changed"]
    assert "sha256 of 5 files right (a full check was asked for" in result["summary"]


def test_a_changed_program_replaces_the_installed_one(play, cache, tmp_path):
    play([model("tiny", cache)])
    installed = (tmp_path / "program/current").resolve()
    newer = program_lookup.pack(ROLE / "files/model_stager")
    result = play([model("tiny", cache)], program={**newer, "digest": "f" * 64})

    assert result["changed"]
    assert installed.is_dir(), "a stager that works may go on"
    assert (tmp_path / "program/current").resolve().name == "f" * 16
    done = subprocess.run(
        [sys.executable, "-m", "model_stager", "--version"],
        capture_output=True,
        cwd=tmp_path / "program/current",
        check=False,
    )
    assert done.returncode == 0


def test_the_stagers_user_gets_what_root_has_put_there(root):
    (root / "tiny").mkdir()
    (root / "tiny/config.json").write_text("{}")
    (root / "theirs").mkdir()
    (root / "tiny/link").symlink_to(root / "theirs")

    runner.hand_over(str(root), "tiny", "nobody")

    assert {path.lstat().st_uid for path in (root / "tiny", *(root / "tiny").iterdir())} == {65534}
    assert (root / "theirs").stat().st_uid == 0, "links are not followed"


def test_a_root_that_the_user_can_not_write_is_refused_before_anything_is_made(play, cache, root, tmp_path):
    result = play([model("tiny", cache)], user="nobody")

    assert f"{root} (uid 0, mode 755) can't be written by the user nobody" in result["msg"]
    assert tree(root) == {}


def test_the_unit_may_only_write_below_the_root():
    setting = command.Setting("/opt/x", "/dev/shm", "model-stager")
    argv = command.systemd_run("tiny", ["python3"], setting)

    assert argv[:3] == ["systemd-run", "--quiet", "--unit=model-stage-tiny.service"]
    assert {
        "--property=User=model-stager",
        "--property=ReadWritePaths=/dev/shm",
        "--property=AmbientCapabilities=CAP_DAC_READ_SEARCH",
        "--property=ProtectSystem=strict",
        "--property=NoNewPrivileges=yes",
    } <= set(argv)
    assert argv[-2:] == ["--", "python3"]


class FakeSystemctl:
    """What systemctl and journalctl print after a unit was killed."""

    def __call__(self, argv):
        if argv[0] == "journalctl":
            return 0, "Killed process 12\nMain process exited\n", ""
        return 0, "ActiveState=failed\nResult=oom-kill\nExecMainStatus=9\n", ""


def test_a_unit_that_was_killed_says_how():
    said = runner.Systemd(FakeSystemctl()).end("tiny")

    assert said == (
        "model-stage-tiny.service ended without a result (oom-kill, status 9). "
        "Killed process 12 / Main process exited"
    )


@pytest.mark.parametrize(
    ("now", "line"),
    [
        ({}, "qwen: starting"),
        (
            {
                "bytes": 21e9,
                "total_bytes": 52e9,
                "rate_bytes_s": 1.15e9,
                "seconds_left": 27.4,
                "source": "the HF cache",
                "file": "model-3.safetensors",
                "state": "copying",
            },
            "qwen: 21.0 of 52.0 GB, 1.15 GB/s, 27 s left, from the HF cache (model-3.safetensors)",
        ),
        (
            {
                "bytes": 0,
                "total_bytes": 52e9,
                "rate_bytes_s": 0,
                "seconds_left": None,
                "source": None,
                "file": None,
                "state": "checking",
            },
            "qwen: 0.0 of 52.0 GB checked",
        ),
    ],
    ids=["starting", "copying", "checking"],
)
def test_progress_reads_like_a_sentence(now, line):
    assert state.progress_line("qwen", now) == line


def test_the_unit_sees_the_containers_own_boot_id_and_memory():
    """Each of these mounts a new /proc, without what LXC and lxcfs have laid over it (seen in the lab)."""
    names = {value.partition("=")[0] for value in command.HARDENING}

    assert names.isdisjoint({"ProtectKernelTunables", "ProtectControlGroups", "ProtectProc", "ProcSubset"})
