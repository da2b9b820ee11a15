"""An engine's log by key: the recorded one, the shapes seen in the field, and any bytes."""

from pathlib import Path

import pytest
from bench_runner.server.loading import progress
from bench_runner.server.log_lines import batches, clean, last_lines, read_batch, read_line
from hypothesis import given
from hypothesis import strategies as st

LOGS = Path(__file__).resolve().parents[2] / "data/sglang-logs"
RECORDED = LOGS / "server-0.5.23-cpu-ngram.log"

DENSE = (
    "#running-req: 1, #token: 66, token usage: 0.01, cuda graph: True, gen throughput (token/s): 8.85, "
    "#queue-req: 0"
)
HYBRID = (
    "#running-req: 2, #full token: 1234, full token usage: 0.03, mamba num: 4, mamba usage: 0.02, "
    "accept len: 4.05, accept rate: 0.27, cuda graph: True, gen throughput (token/s): 182.90, #queue-req: 3"
)
PREFIXES = {
    "": (None, {}),
    "[2026-04-08 14:05:21] ": ("2026-04-08 14:05:21", {}),
    "[2026-04-08 14:05:21 TP0] ": ("2026-04-08 14:05:21", {"TP": 0}),
    "[2026-04-08 14:05:21 PP0 TP3] ": ("2026-04-08 14:05:21", {"PP": 0, "TP": 3}),
    "[2026-04-08 14:05:21 DP1 TP0 EP0] ": ("2026-04-08 14:05:21", {"DP": 1, "TP": 0, "EP": 0}),
    "\x1b[32m[2026-04-08 14:05:21,123 TP0]\x1b[0m ": ("2026-04-08 14:05:21", {"TP": 0}),
}


def test_the_recorded_log_has_the_numbers_it_shows():
    found = batches(last_lines(RECORDED, 1000))
    decode = [batch.values for batch in found if batch.kind == "decode"]
    prefill = [batch.values for batch in found if batch.kind == "prefill"]
    assert (len(decode), len(prefill)) == (26, 8)
    assert [values["accept_len"] for values in decode[:4]] == [1.0, 1.4, 1.2, 1.2]
    assert decode[-1] == {
        "running_req": 1,
        "token": 96,
        "token_usage": 0.01,
        "accept_len": 2.6,
        "accept_rate": 0.15,
        "cpu_graph": False,
        "gen_throughput_token_s": 189.87,
        "queue_req": 0,
    }
    assert sum(values["new_token"] for values in prefill) == 1 + 1 + 19 + 7 + 1 + 1 + 1 + 7
    assert sum(values["cached_token"] for values in prefill) == 6
    assert {batch.at[:10] for batch in found} == {"2026-11-30"}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("ending", ["", ",", ", ", " \x1b[0m"])
@pytest.mark.parametrize(
    "word", ["Decode batch, ", "Decode batch. ", "Decode batch [40], ", "Decode batch: "]
)
def test_every_shape_of_a_batch_line_is_read_by_key(prefix, ending, word):
    at, ranks = PREFIXES[prefix]
    dense = read_batch(clean(f"{prefix}{word}{DENSE}{ending}".encode()))
    assert (dense.kind, dense.at, dense.ranks) == ("decode", at, ranks)
    assert dense.values["token"] == 66
    assert dense.values["cuda_graph"] is True
    hybrid = read_batch(clean(f"{prefix}{word}{HYBRID}{ending}".encode()))
    assert "token" not in hybrid.values
    assert (hybrid.values["full_token"], hybrid.values["mamba_num"]) == (1234, 4)
    assert (hybrid.values["accept_len"], hybrid.values["queue_req"]) == (4.05, 3)
    assert hybrid.values["gen_throughput_token_s"] == 182.9


def test_a_hybrid_prefill_line_of_eight_ranks_is_read():
    line = (
        "[2026-07-04 04:31:24 TP7] Prefill batch, #new-seq: 12, #new-token: 43008, #cached-token: 0, "
        "full token usage: 0.14, mamba usage: 0.20, #running-req: 1, #queue-req: 97, #pending-token: 109585, "
        "npu graph: False, input throughput (token/s): 15734.14"
    )
    found = read_batch(line)
    assert (found.kind, found.ranks, found.values["new_token"]) == ("prefill", {"TP": 7}, 43008)
    assert found.values["mamba_usage"] == 0.2


def test_what_is_no_number_is_none_and_what_is_no_batch_line_is_no_batch():
    assert read_batch("Decode batch, #running-req: 1, accept len: nan").values["accept_len"] is None
    assert read_batch("Decode batches are counted: no") is None
    assert read_batch("[2026-04-08 14:05:21 TP0] Decode out of memory happened, #running-req: 3") is None
    assert read_line("[http_server] Error: x").text == "[http_server] Error: x"


def test_of_a_progress_bar_its_last_state_counts_and_of_two_megabytes_both_ends():
    assert clean(b"\rshards:   0% | 0/2\rshards: 100% | 2/2\r") == "shards: 100% | 2/2"
    long = clean(b"server_args={" + b"x" * 2_000_000 + b"} end")
    assert len(long) < 10_000
    assert long.startswith("server_args={")
    assert long.endswith("} end")
    assert clean(b"caf\xc3\xa9 \xff\xfe \x1b[1;33mwarn\x1b[0m\x00") == "café \ufffd\ufffd warn"


def test_a_log_of_gigabytes_is_read_from_its_end(tmp_path):
    path = tmp_path / "server.log"
    with path.open("wb") as file:
        file.seek(3 * 2**30)  # a hole: three gigabytes that take no room
        file.write(b"\nlast but two\n" + b"y" * 2_000_000 + b"\nthe last")
    found = last_lines(path, 3)
    assert (found[0], found[-1]) == ("last but two", "the last")
    assert [len(line) < 10_000 for line in found] == [True] * 3
    assert last_lines(path, 1) == ["the last"]
    assert len(last_lines(path, 5, max_bytes=1000)[0]) <= 1000
    empty = tmp_path / "empty.log"
    empty.touch()
    assert last_lines(empty, 10) == []


@given(st.lists(st.binary(max_size=200), max_size=30), st.integers(1, 20), st.integers(1, 5000))
def test_the_last_lines_of_any_bytes_are_those_of_the_whole_file(tmp_path_factory, lines, count, max_bytes):
    path = tmp_path_factory.mktemp("log") / "any.log"
    data = b"\n".join(lines)
    path.write_bytes(data)
    whole = data.split(b"\n")
    if not whole[-1]:
        whole.pop()
    assert last_lines(path, count) == [clean(line) for line in whole[-count:]]
    assert len(last_lines(path, count, max_bytes=max_bytes)) <= count


@given(st.binary(max_size=400))
def test_no_bytes_make_the_parser_stumble(data):
    text = clean(data)
    assert "\r" not in text
    read_batch(text)
    read_batch("[2026-04-08 14:05:21 TP0] Decode batch, " + text)
    progress([text])


@given(
    st.dictionaries(
        st.sampled_from(["#running-req", "#token", "accept len", "cuda graph", "gen throughput (token/s)"]),
        st.one_of(st.integers(0, 10**9), st.booleans(), st.floats(0, 10**6).map(lambda x: round(x, 2))),
    )
)
def test_what_is_written_by_key_is_read_by_key_in_any_order(values):
    line = "Decode batch, " + ", ".join(f"{key}: {value}" for key, value in {**values, "#new-seq": 1}.items())
    found = read_batch(line)
    assert list(found.values.values())[:-1] == list(values.values())


LOADING = {
    "[t] server_args={'model_path': 'x'}": "starting",
    "Multi-thread loading shards:   0% Completed | 0/1 [00:00<?]": "loading weights: 0 % (0 of 1 shards)",
    "Loading safetensors checkpoint shards:  43% Completed | 6/14 [00:05<00:07,  1.10it/s]": (
        "loading weights: 43 % (6 of 14 shards)"
    ),
    "Loading shards:  10% Completed | 1/10 [0]Loading shards:  20% Completed | 2/10 [1]": (
        "loading weights: 20 % (2 of 10 shards)"
    ),
    "[2025-08-08 03:34:38] Capture cuda graph begin.": "capturing CUDA graphs",
    "Capturing batches (bs=144 avail_mem=15.07 GB):  58%|██▌| 30/52 [00:07<00:05]": (
        "capturing CUDA graphs: 58 % (30 of 52)"
    ),
    "  0%|     | 0/3 [00:00<?]Capturing batches (bs=4 avail_mem=60.05 GB):  33%|███▎   | 1/3 [00:01<": (
        "capturing CUDA graphs: 33 % (1 of 3)"
    ),
    "[2026-11-30 18:35:45] The server is fired up and ready to roll!": "ready",
    "load_tensors: loading model tensors, this can take a while...": "loading weights",
}


@pytest.mark.parametrize(("line", "words"), LOADING.items())
def test_a_line_of_a_start_is_put_into_words(line, words):
    assert progress(["something before", line, "something after"]) == words


def test_the_newest_sign_of_progress_counts():
    raw = RECORDED.read_bytes().split(b"\n")
    told = [progress([clean(line) for line in raw[:end]]) for end in range(len(raw))]
    assert list(dict.fromkeys(told)) == [
        None,
        "starting",
        "joining the GPUs",
        "loading weights",
        "loading weights: 100 % (1 of 1 shards)",
        "weights are loaded",
        "the KV cache is allocated",
        "listening, warming up",
        "ready",
    ]
