"""The client's sockets: stamps of the kernel, the two clocks, large requests, connections that go away."""

from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
import time

import pytest
import uvloop
from bench_runner.client.clocks import ClockPair
from bench_runner.client.http1 import BrokenHttpError, Response
from bench_runner.client.lags import Lags
from bench_runner.client.receivers import KernelReceiver, ReadTimeReceiver, best_receiver
from bench_runner.client.tape import Piece, Tape
from bench_runner.client.transport import Connection
from hypothesis import given
from hypothesis import strategies as st

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def serve():
    """Start a server that gives each connection to a function; returns its port."""
    servers = []

    def start(handle) -> int:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                handle(self.request)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server.server_address[1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def read_request(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(65536) or b"\r\n\r\n"
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
    while len(body) < length:
        body += sock.recv(65536)
    return body


def talk(port: int, *bodies: bytes, receiver=None, stall_s: float = 5, pause_s: float = 0):
    async def several():
        connection = Connection("127.0.0.1", port, receiver or best_receiver())
        try:
            found = []
            for body in bodies:
                found.append(await connection.post("/", body, stall_s=stall_s, limit_s=10))
                await asyncio.sleep(pause_s)
            return found
        finally:
            connection.close()

    return uvloop.run(several())


def test_the_kernels_stamp_is_when_the_bytes_came_not_when_they_were_read():
    receiver = best_receiver()
    if not isinstance(receiver, KernelReceiver):
        pytest.skip("no kernel stamps here")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        receiver.prepare(client)
        client.connect(server.getsockname())
        with server.accept()[0] as peer:
            sent_ns = time.monotonic_ns()
            peer.sendall(b"late")
            arrived_ns = time.monotonic_ns()
            time.sleep(0.05)
            data, at_ns = receiver(client)
    assert data == b"late"
    assert sent_ns - 100_000 < at_ns < arrived_ns + 5_000_000
    assert receiver.lags.summary().max_ms > 40


def test_where_the_kernel_stamps_nothing_the_reading_is_the_time(serve):
    def handle(sock):
        read_request(sock)
        sock.sendall(REPLY)

    receiver = ReadTimeReceiver()
    sent_ns = time.monotonic_ns()
    (exchange,) = talk(serve(handle), b"{}", receiver=receiver)
    assert receiver.stamps == "read_monotonic"
    assert [sent_ns < piece.at_ns < time.monotonic_ns() for piece in exchange.response.pieces] == [True]


def test_a_request_larger_than_the_socket_takes_at_once_arrives_whole(serve):
    got = []

    def handle(sock):
        time.sleep(0.05)  # until the buffers are full
        got.append(read_request(sock))
        sock.sendall(REPLY)

    body = bytes(range(256)) * 40_000
    (exchange,) = talk(serve(handle), body)
    assert (exchange.fault, exchange.response.body()) == (None, b"ok")
    assert got == [body]


def test_a_connection_that_the_server_closed_while_idle_is_opened_again(serve):
    connections = []

    def handle(sock):
        connections.append(sock)
        read_request(sock)
        sock.sendall(REPLY)

    exchanges = talk(serve(handle), b"1", b"2", b"3", pause_s=0.02)
    assert [(exchange.fault, exchange.response.status) for exchange in exchanges] == [(None, 200)] * 3
    assert len(connections) == 3


def test_a_request_that_is_given_up_leaves_nothing_behind(serve):
    def handle(sock):
        read_request(sock)
        sock.recv(1)

    port = serve(handle)

    async def give_up():
        connection = Connection("127.0.0.1", port, best_receiver())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(connection.post("/", b"{}", stall_s=5, limit_s=5), 0.05)
        assert connection._socket is None

    uvloop.run(give_up())


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\nmore", "broken_http"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "stalled"),
        (b"HTTP/1.1 200 OK\r\n", "stalled"),
    ],
    ids=["chunk size", "silence", "half a head"],
)
def test_silence_ends_a_request_and_what_came_before_is_still_judged(serve, sent, code):
    def handle(sock):
        read_request(sock)
        sock.sendall(sent)
        sock.recv(1)

    (exchange,) = talk(serve(handle), b"{}", stall_s=0.1)
    assert exchange.fault == code


@given(cuts=st.lists(st.integers(0, 400), max_size=30), size=st.integers(1, 60))
def test_a_chunked_body_taken_apart_late_is_the_same(cuts, size):
    body = b"data: {}\r\n\r\n0\n\ndata: 1\n\n" * 3
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    whole = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + framed + b"0\r\nTrailer: x\r\n\r\n"
    places = sorted({0, *(cut % (len(whole) + 1) for cut in cuts), len(whole)})
    response, at_once = Response(), Response()
    for at_ns, (start, end) in enumerate(zip(places, places[1:], strict=False)):
        assert not response.complete
        response.add(whole[start:end], at_ns)
        at_once.feed(whole[start:end], at_ns)
    assert response.complete
    assert list(response.pieces) == list(at_once.pieces)
    assert response.body() == body


def test_what_looks_like_the_end_and_is_none_is_found_when_it_is_taken_apart():
    response = Response()
    response.add(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", 1)
    response.add(b"11\r\nan event\r\n0\r\n\r\n", 2)
    assert response.complete
    with pytest.raises(BrokenHttpError, match="looked like the last chunk"):
        response.settle()


@given(st.lists(st.binary(min_size=1, max_size=5000), max_size=30))
def test_a_tape_gives_back_what_it_took(texts):
    tape = Tape()
    for at_ns, text in enumerate(texts):
        tape.append(at_ns, text)
    assert list(tape) == [Piece(at_ns, text) for at_ns, text in enumerate(texts)]
    tape.pack()
    assert tape.read() == b"".join(texts)
    assert tape.size == sum(map(len, texts))


def test_a_step_of_the_clock_is_seen_and_a_slow_correction_is_none():
    offsets = iter([0, 2_000, 4_000, 300_004_000, 300_006_000])
    clocks = ClockPair(lambda: (next(offsets), 100))
    for _ in range(4):
        clocks.sample()
    assert [step.step_ns for step in clocks.steps] == [300_000_000]
    assert clocks.offset_ns == 300_006_000


def test_a_reading_that_was_interrupted_does_not_move_the_stamps():
    readings = iter([(0, 100), (90_000, 400_000), (10, 100)])
    clocks = ClockPair(lambda: next(readings))
    clocks.sample()
    assert (clocks.offset_ns, clocks.steps) == (0, [])
    clocks.sample()
    assert clocks.offset_ns == 10


def test_lags_are_told_no_better_than_they_were():
    lags = Lags()
    assert lags.summary() is None
    for microseconds in range(1, 101):
        lags.add(microseconds * 1000)
    lags.add(50_000_000)
    found = lags.summary()
    assert (found.n, found.max_ms) == (101, 50)
    assert 0.051 <= found.p50_ms < 0.06
    assert 0.1 <= found.p99_ms < 0.11
