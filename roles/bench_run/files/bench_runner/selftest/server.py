"""A streaming server with an exact schedule, which keeps the true time of each chunk that it sends.

A process of its own: `python -m bench_runner.selftest.server` tells its port, and ends with its input.
A request says how it is to be answered, or the arguments do, for clients that know nothing of this server.
`GET /truth` gives the times of what was answered since it was last asked.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import heapq
import json
import os
import selectors
import socket
import sys
import time
from array import array
from typing import TYPE_CHECKING, Any

from bench_runner.client.receivers import Receiver, best_receiver
from bench_runner.client.timer import make_timerfd, set_timerfd

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"server: selftest\r\ntransfer-encoding: chunked\r\n\r\n"
)
_US = 1_000
_TELL_S = 30
_IDLE_S = 0.2
_OTHERS = 1_000_000  # numbers of requests that have none of their own


class Answer:
    """One request that is being answered: `due` gives the next chunk's time."""

    def __init__(self, visitor: Visitor, asked: dict[str, Any], came_ns: int, number: int) -> None:
        self.visitor = visitor
        self.number = number
        self.chat = "messages" in asked
        self.came_ns = came_ns
        self.first_ns = int(asked["ttft_us"]) * _US
        self.gap_ns = int(asked["gap_us"]) * _US
        self.chunks = asked["max_tokens"] // asked["tokens_per_chunk"]
        self.sent_ns = array("q")
        self.late_ns = 0
        self.slow_ns = 0  # the longest sending: a time noted before one that others held up is no truth
        tokens = asked["max_tokens"]
        text = " the" * asked["tokens_per_chunk"]
        said = {"delta": {"content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": None}
        self.chunk = _framed(self._event([choice]))
        last = self._event([{**choice, "finish_reason": "length"}])
        usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}
        self.end = (
            _framed(last) + _framed(self._event([], usage)) + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        )

    def due_ns(self) -> int:
        return self.came_ns + self.first_ns + len(self.sent_ns) * self.gap_ns

    def truth(self) -> dict[str, Any]:
        return {
            "came_ns": self.came_ns,
            "sent_ns": list(self.sent_ns),
            "late_ns": self.late_ns,
            "slow_ns": self.slow_ns,
        }

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
        """As long as SGLang's."""
        event = {
            "id": f"cmpl-{self.number:032d}",
            "object": "chat.completion.chunk" if self.chat else "text_completion",
            "created": 1796078773,
            "model": "selftest",
            "choices": choices,
            "usage": usage,
        }
        return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


class Visitor:
    """A connection: requests in, one after the other."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.got = b""
        self.open = True

    def requests(self) -> list[tuple[str, bytes]]:
        """The whole ones that have come."""
        found = []
        while (end := self.got.find(b"\r\n\r\n")) >= 0:
            head = self.got[:end].decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].split("\r\n")[0] or 0)
            if len(self.got) < end + 4 + length:
                break
            found.append((head.split(" ")[1], self.got[end + 4 : end + 4 + length]))
            self.got = self.got[end + 4 + length :]
        return found


class ExactServer:
    def __init__(self, receiver: Receiver, listener: socket.socket, usual: dict[str, Any]) -> None:
        self.usual = usual
        self.receiver = receiver
        self.listener = listener
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ, self._accept)
        self._waiting: list[tuple[int, int, Answer]] = []  # by the time of the next chunk
        self._done: dict[int, Answer] = {}
        self._pushed = 0
        self._others = 0
        self._timer = make_timerfd()
        if self._timer is not None:
            self.selector.register(self._timer, selectors.EVENT_READ, self._woken)

    def serve(self, ends: Callable[[], bool]) -> None:
        while not ends():
            for key, _ in self.selector.select(self._pause_s()):
                key.data(key.fileobj)
            self._send_what_is_due()

    def _pause_s(self) -> float:
        """A selector waits in whole milliseconds; the end of the timer is something to read."""
        if not self._waiting:
            return _IDLE_S
        due_ns = self._waiting[0][0]
        if self._timer is None:
            return max(due_ns - time.monotonic_ns(), 0) // 1_000_000 / 1e3
        set_timerfd(self._timer, due_ns)
        return _IDLE_S

    def _woken(self, timer: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(timer, 8)

    def _send_what_is_due(self) -> None:
        waiting, clock = self._waiting, time.monotonic_ns
        while waiting and waiting[0][0] <= clock():
            due_ns, _, answer = heapq.heappop(waiting)
            last = len(answer.sent_ns) == answer.chunks - 1
            now_ns = clock()
            answer.sent_ns.append(now_ns)
            answer.late_ns = max(answer.late_ns, now_ns - due_ns)
            try:
                answer.visitor.sock.send(answer.end if last else answer.chunk)
            except OSError:
                continue
            answer.slow_ns = max(answer.slow_ns, clock() - now_ns)
            if last:
                self._done[answer.number] = answer
            else:
                self._push(answer)

    def _push(self, answer: Answer) -> None:
        self._pushed += 1
        heapq.heappush(self._waiting, (answer.due_ns(), self._pushed, answer))

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            sock, _ = listener.accept()
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.receiver.prepare(sock)
            visitor = Visitor(sock)
            self.selector.register(sock, selectors.EVENT_READ, lambda _: self._read(visitor))

    def _read(self, visitor: Visitor) -> None:
        try:
            data, came_ns = self.receiver(visitor.sock)
        except BlockingIOError:
            return
        except OSError:
            data, came_ns = b"", 0
        if not data:
            self.selector.unregister(visitor.sock)
            visitor.sock.close()
            return
        visitor.got += data
        for path, body in visitor.requests():
            if path == "/truth":
                self._tell(visitor)
            elif path.endswith("/completions"):
                self._begin(visitor, {**self.usual, **json.loads(body)}, came_ns)
            else:
                self._reply(visitor, {"object": "list", "data": [{"id": "selftest", "object": "model"}]})

    def _begin(self, visitor: Visitor, asked: dict[str, Any], came_ns: int) -> None:
        prompt = asked.get("prompt")
        known = isinstance(prompt, str) and prompt.isdigit()
        self._others += not known
        answer = Answer(visitor, asked, came_ns, int(str(prompt)) if known else _OTHERS + self._others)
        with contextlib.suppress(OSError):
            visitor.sock.send(_HEAD)
            self._push(answer)

    def _tell(self, visitor: Visitor) -> None:
        self.receiver.clocks.sample()
        truth = {str(number): answer.truth() for number, answer in self._done.items()}
        self._done.clear()
        self._reply(visitor, truth)

    def _reply(self, visitor: Visitor, reply: dict[str, Any]) -> None:
        body = json.dumps(reply).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        visitor.sock.settimeout(_TELL_S)
        with contextlib.suppress(OSError):
            visitor.sock.sendall(head.encode() + body)
        visitor.sock.settimeout(0)


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def main() -> None:
    parser = argparse.ArgumentParser(description="A streaming server with an exact schedule.")
    parser.add_argument("--ttft-us", type=int, default=50_000)
    parser.add_argument("--gap-us", type=int, default=10_000)
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=200)
    usual = vars(parser.parse_args())
    gc.disable()  # nothing here makes cycles, and a collection would be late chunks
    ended: list[bool] = []
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        listener.settimeout(0)
        server = ExactServer(best_receiver(), listener, usual)
        server.selector.register(
            sys.stdin, selectors.EVENT_READ, lambda _: ended.append(True) if not os.read(0, 4096) else None
        )
        print(listener.getsockname()[1], flush=True)  # noqa: T201 - whoever started this reads it
        server.serve(lambda: bool(ended))


if __name__ == "__main__":
    main()
