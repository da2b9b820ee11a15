"""From bytes on the wire to one request's verdict: framing, events, and a code for each way to go wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from bench_runner.client.http1 import BrokenHttpError, Response
from bench_runner.client.sse import events
from bench_runner.client.stream import read_stream
from bench_runner.client.tape import Piece
from bench_runner.client.transport import Connection, Exchange, ReadTimeReceiver
from bench_runner.client.verdict import is_garbage, judge
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.sglang_shaped import Behaviour, Fault
from tests.unit.bench_runner.conftest import free_port

RECORDED = Path(__file__).resolve().parents[2] / "data/sglang-http"

EVENTS = (
    b'data: {"choices":[{"text":"f\xc3\xa9"}]}\n\n'
    b": a comment\r\n\r\n"
    b'data: {"choices":[{"text":"\xe2\x82\xac"}]}\r\n\r\n'
    b"event: note\ndata: one\ndata: two\n\n"
    b"data: [DONE]\n\n"
)
PARSED = [
    '{"choices":[{"text":"fé"}]}'.encode(),
    '{"choices":[{"text":"€"}]}'.encode(),
    b"one\ntwo",
    b"[DONE]",
]


def chunked(body: bytes, size: int = 7) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(f"{len(part):X};ext=1\r\n".encode() + part + b"\r\n" for part in parts)
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        + framed
        + b"0\r\nTrailer: x\r\n\r\n"
    )


def fed(data: bytes, cuts: list[int]) -> Response:
    response = Response()
    places = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    for at_ns, (start, end) in enumerate(zip(places, places[1:], strict=False), 1):
        response.feed(data[start:end], at_ns)
    return response


@given(cuts=st.lists(st.integers(min_value=0, max_value=1000), max_size=40), size=st.integers(1, 50))
def test_a_stream_reads_the_same_however_it_is_cut(cuts, size):
    response = fed(chunked(EVENTS, size), cuts)
    assert response.complete
    assert response.keeps_alive
    assert [event.data for event in events(response.pieces)] == PARSED


@given(cuts=st.lists(st.integers(min_value=0, max_value=1000), max_size=40))
def test_events_bear_any_line_ends(cuts):
    for ending in (b"\n", b"\r\n", b"\r"):
        body = b"\xef\xbb\xbf" + EVENTS.replace(b"\r\n", b"\n").replace(b"\n", ending)
        places = sorted({0, *(cut % (len(body) + 1) for cut in cuts), len(body)})
        pieces = [Piece(at, body[a:b]) for at, (a, b) in enumerate(zip(places, places[1:], strict=False))]
        assert [event.data for event in events(pieces)] == PARSED


def test_an_event_has_the_time_its_last_byte_came():
    pieces = [Piece(1, b"data: a"), Piece(2, b"\n"), Piece(3, b"\ndata: b\n\n")]
    assert [(event.at_ns, event.data) for event in events(pieces)] == [(3, b"a"), (3, b"b")]


def test_an_event_that_the_end_cut_off_is_none():
    assert list(events([Piece(1, b"data: whole\n\ndata: par")])) == list(
        events([Piece(1, b"data: whole\n\n")])
    )


def test_a_body_with_a_length_ends_there():
    response = fed(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 5\r\n\r\nhello", [20, 46])
    assert (response.status, response.body(), response.complete) == (400, b"hello", True)


def test_a_body_without_a_frame_ends_with_the_connection():
    response = fed(b"HTTP/1.0 200 OK\r\n\r\nhello", [])
    assert not response.complete
    response.at_eof()
    assert response.complete
    assert response.body() == b"hello"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=["no http", "chunk size", "chunk end", "length"],
)
def test_what_is_no_http_is_said_to_be_none(data):
    with pytest.raises(BrokenHttpError):
        fed(data, [])


def recorded(name: str, *, cut: int | None = None) -> Exchange:
    head, _, body = (RECORDED / f"{name}.http").read_bytes().partition(b"\r\n\r\n")
    if not body:
        head, _, body = (RECORDED / f"{name}.http").read_bytes().partition(b"\n\n")
    framed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if b"hunked" in head else body
    response = Response()
    whole = head.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") + b"\r\n\r\n" + framed
    response.feed(whole[:cut], 1_000_000)
    return Exchange(sent_ns=0, end_ns=2_000_000, response=response)


def test_real_sglang_gives_text_usage_and_speculation():
    stream = read_stream(recorded("completions_stream_spec"))
    assert stream.fault is None
    assert (stream.usage.prompt_tokens, stream.usage.completion_tokens) == (7, 48)
    assert stream.finish_reason == "length"
    assert stream.spec_tokens_details["spec_verify_ct"] == 30
    assert judge(stream, prompt_tokens=7, output_tokens=48) is None


def test_real_sglang_chat_starts_with_an_empty_delta_that_is_no_token():
    stream = read_stream(recorded("chat_stream_spec"))
    assert stream.fault is None
    assert stream.usage.completion_tokens == 48
    assert len(stream.chunks_ns) < 48


def test_a_real_crash_is_not_taken_for_an_answer():
    stream = read_stream(recorded("crash_mid_stream"))
    assert stream.fault == "no_done"
    assert stream.text


@pytest.mark.parametrize("name", ["overflow_by_output", "overflow_completions", "overflow_generate_stream"])
def test_real_overflow_has_its_own_code_with_status_400_and_with_200(name):
    assert read_stream(recorded(name)).fault == "context_overflow"


FAULT_CODES = {
    "error_event": "error_event",
    "overflow_event": "context_overflow",
    "clean_eof": "no_done",
    "truncated": "truncated",
    "reset": "reset",
    "broken_chunk": "broken_http",
    "bad_json": "bad_json",
    "zero_tokens": "zero_tokens",
    "no_usage": "no_usage",
    "no_done": "no_done",
    "early_stop": "early_stop",
    "wrong_usage": "usage_below_chunks",
    "wrong_prompt": "prompt_length_differs",
    "garbage": "garbage_text",
    "stall": "stalled",
    "wrong_type": "wrong_content_type",
    "http_503": "http_503",
}


def ask(port, *, prompt="a b c", tokens=8, times=1, stall_s=5.0, loop=asyncio):  # noqa: PLR0913 - a request
    async def several():
        connection = Connection("127.0.0.1", port, ReadTimeReceiver())
        wanted = {"stream": True, "stream_options": {"include_usage": True}}
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, **wanted}).encode()
        try:
            return [
                await connection.post("/v1/completions", body, stall_s=stall_s, limit_s=10)
                for _ in range(times)
            ]
        finally:
            connection.close()

    return [read_stream(exchange) for exchange in loop.run(several())]


@pytest.mark.parametrize(("fault", "code"), FAULT_CODES.items())
def test_each_fault_has_its_code_and_none_is_ok(simulator, fault, code):
    port = simulator(Behaviour(faults=[Fault(fault)]))
    (stream,) = ask(port, tokens=40, stall_s=0.6)
    assert judge(stream, prompt_tokens=5, output_tokens=40).code == code


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_reset_is_seen_long_before_a_stall_on_either_loop(simulator, loop):
    port = simulator(Behaviour(faults=[Fault("reset")]))
    for stream in ask(port, times=4, stall_s=20, loop=pytest.importorskip(loop)):
        assert stream.fault == "reset"
        assert stream.end_ns - stream.sent_ns < 5e9


def test_nothing_but_one_mark_is_garbage_and_what_a_random_model_says_is_not():
    assert is_garbage("!" * 40)
    assert not is_garbage("\ufffd" * 60)
    assert not is_garbage("rea/rea/rea/rea/rea/rea/rea/")
    assert not is_garbage("!!!")
    assert not is_garbage("\n" * 60)


def test_a_good_answer_is_ok_and_the_connection_is_kept(simulator):
    port = simulator(Behaviour(tokens_per_chunk=3))
    for stream in ask(port, times=3):
        assert judge(stream, prompt_tokens=5, output_tokens=8) is None
        assert (len(stream.chunks_ns), stream.usage.completion_tokens) == (3, 8)
        assert stream.sent_ns < stream.chunks_ns[0] <= stream.chunks_ns[-1] <= stream.end_ns


def test_after_a_fault_the_next_request_gets_a_fresh_connection(simulator):
    port = simulator(Behaviour(faults=[Fault("truncated", times=1)]))
    first, second = ask(port, times=2)
    assert first.fault == "truncated"
    assert judge(second, prompt_tokens=5, output_tokens=8) is None


def test_nobody_listening_is_refused():
    (stream,) = ask(free_port())
    assert stream.fault == "refused"


def test_too_long_a_request_is_an_overflow(simulator):
    port = simulator(Behaviour(context=8))
    (stream,) = ask(port)
    assert stream.fault == "context_overflow"
    assert "maximum context length of 8" in stream.fault_detail


def test_the_sending_time_and_the_chunks_agree_with_the_servers_schedule(simulator):
    port = simulator(Behaviour(first_s=0.05, chunk_s=0.01))
    (stream,) = ask(port, tokens=10)
    first_ms = (stream.chunks_ns[0] - stream.sent_ns) / 1e6
    last_ms = (stream.chunks_ns[-1] - stream.chunks_ns[0]) / 1e6
    assert 50 <= first_ms < 80
    assert 90 <= last_ms < 150
