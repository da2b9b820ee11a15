"""The table of signatures: each known end of a server by name, with what the line said of it."""

import csv
from pathlib import Path

import pytest
from bench_runner.cli import main
from bench_runner.server.log_lines import last_lines
from bench_runner.server.signatures import classify, said, shows_a_crash, table

LOGS = Path(__file__).resolve().parents[2] / "data/sglang-logs"
RECORDED = LOGS / "server-0.5.23-cpu-ngram.log"
KILLED = {"ActiveState": "failed", "Result": "signal", "ExecMainCode": 2, "ExecMainStatus": 9}
EXITED = {"ActiveState": "failed", "Result": "exit-code", "ExecMainCode": 1, "ExecMainStatus": 1}
UNIT = "inference-tp1-auto.service"
OOM_TASK = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=ns,mems_allowed=0,oom_memcg=/lxc/200,"
    f"task_memcg=/lxc/200/ns/system.slice/{UNIT},task=python3,pid=4242,uid=997"
)

# Lines as they were seen in the field: where, the signature, a part of its sentence, the line.
with (LOGS / "last-words.tsv").open(newline="") as _file:
    LAST_WORDS = list(csv.DictReader(_file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("words", LAST_WORDS, ids=lambda words: words["line"][:40])
def test_last_words_are_a_signature_with_their_numbers(words):
    where, line = words["found_in"], words["line"]
    said_before = "[2026-11-30 18:36:21 TP0] Decode batch, #running-req: 1"
    prefix = {"journal": "[2026-11-30 18:36:22 TP0] ", "kernel": "<4>[ 7.5] "}[where]
    bare = words["signature"] in {"import_error", "stopped_by_someone"}
    logs = {"journal": [said_before], "kernel": []}
    logs[where].append(line if bare else prefix + line)
    crash = classify({**EXITED, **logs})
    assert (crash.signature, crash.found_in) == (words["signature"], where)
    assert words["sentence_has"] in crash.sentence
    assert "{" not in crash.sentence
    assert crash.advice


def test_the_recorded_crash_is_told_as_it_was_and_not_by_what_is_harmless_in_its_log():
    crash = classify({**KILLED, "journal": last_lines(RECORDED, 1000), "kernel": [], "notes": []})
    assert crash.signature == "killed_by_someone"
    assert "scheduler_0 (pid 12503) was killed from outside with signal 9" in crash.sentence
    alive = last_lines(RECORDED, 1000)[:-5]
    assert not shows_a_crash({"journal": alive, "kernel": []})
    shown = said({**KILLED, "journal": last_lines(RECORDED, 1000), "kernel": []})
    assert shown["last_batch"]["values"]["accept_len"] == 2.6


def test_the_cause_stands_before_what_follows_from_it():
    journal = [
        "Scheduler hit an exception: Traceback (most recent call last):",
        "CUDA error: an illegal memory access was encountered",
        "Subprocess scheduler_0 (pid=7) crashed with exit code 1. Triggering SIGQUIT for cleanup...",
    ]
    crash = classify({**KILLED, "journal": journal, "kernel": ["NVRM: Xid (PCI:0000:41:00): 31, pid=7"]})
    assert crash.signature == "cuda_illegal_memory_access"
    assert {"gpu_xid", "scheduler_exception"} <= set(crash.also)
    gone = classify({**KILLED, "journal": journal, "kernel": ["NVRM: Xid (PCI:0000:41:00): 79, pid=7"]})
    assert gone.signature == "gpu_fell_off_bus"


def test_an_oom_kill_counts_where_it_is_ours():
    killed = "Memory cgroup out of memory: Killed process 4242 (python3) anon-rss:61234567kB, file-rss:0kB"
    ours = classify({**KILLED, "unit": UNIT, "journal": [], "kernel": [OOM_TASK, killed]})
    assert ours.signature == "oom_kill_cgroup"
    assert "61234567 kB" in ours.sentence
    other = {**KILLED, "unit": "inference-tp1-other.service", "journal": [], "kernel": [OOM_TASK, killed]}
    assert classify(other).signature == "killed_by_someone"
    host = "Out of memory: Killed process 4242 (python3) anon-rss:61234567kB, file-rss:0kB"
    assert classify({**other, "Result": "oom-kill", "kernel": [host]}).signature == "oom_kill_host"
    assert classify({**other, "Result": "oom-kill", "kernel": []}).signature == "oom_kill"


@pytest.mark.parametrize(
    ("ended", "name"),
    [
        (KILLED, "killed_by_someone"),
        (
            {**KILLED, "ActiveState": "inactive", "Result": "success", "ExecMainStatus": 15},
            "killed_by_someone",
        ),
        ({**KILLED, "ExecMainStatus": 11}, "segmentation_fault"),
        (
            {"ActiveState": "inactive", "Result": "success", "ExecMainCode": 1, "ExecMainStatus": 0},
            "exited_with_status_0",
        ),
        (
            {"ActiveState": "inactive", "Result": "success", "ExecMainCode": 0, "ExecMainStatus": 0},
            "exited_with_status_0",
        ),
        ({**EXITED, "ExecMainStatus": 203}, "did_not_start"),
        (EXITED, "unknown"),
        ({}, "unknown"),
    ],
)
def test_without_a_word_the_way_it_ended_tells(ended, name):
    crash = classify({**ended, "journal": ["nothing of note"], "kernel": [], "notes": []})
    assert crash.signature == name
    assert crash.sentence


def test_where_the_kernels_log_is_hidden_the_oom_killer_is_not_excluded():
    blind = classify({**KILLED, "journal": [], "kernel": [], "notes": ["dmesg: Operation not permitted"]})
    assert "it may have been the OOM killer" in blind.sentence


def test_each_entry_of_the_table_is_reached_by_a_test():
    tested = {words["signature"] for words in LAST_WORDS}
    others = {"oom_kill", "oom_kill_cgroup", "oom_kill_host", "killed_by_someone", "exited_with_status_0"}
    rest = {"did_not_start", "segmentation_fault", "cuda_error"}
    assert {each.name for each in table().signatures} == tested | others | rest
    error = classify({**KILLED, "journal": ["RuntimeError: CUDA error: device-side assert triggered"]})
    assert (error.signature, error.sentence) == ("cuda_error", "CUDA error: device-side assert triggered")


def test_explain_says_of_a_log_file_what_it_died_of_and_how_it_fared(capsys, tmp_path):
    assert main(["explain", str(RECORDED)]) == 0
    shown = capsys.readouterr().out
    assert "killed_by_someone: its scheduler_0 (pid 12503) was killed from outside with signal 9" in shown
    assert "26 decode batches, the last at 2026-11-30 18:36:22" in shown
    assert "accepted length 1 to 4.2, median 1.5" in shown
    alive = tmp_path / "alive.log"
    alive.write_bytes(b"\n".join(RECORDED.read_bytes().split(b"\n")[:100]))
    main(["explain", str(alive)])
    assert "no sign of a crash in it" in capsys.readouterr().out
    assert main(["explain", str(tmp_path / "none.log")]) == 2
    assert "none.log: No such file or directory" in capsys.readouterr().err
