"""A server that speaks like SGLang 0.5.23 and breaks on demand: faults a real engine can't be made to show.

Replies are shaped after recordings of the real one. As a program it is a process that can crash; in a test's
own process it is a thread. A fault applies to completions whose max_tokens lies within its bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import socketserver
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

MODEL = "sim"
FAULTS = (
    "error_event",  # HTTP 200, text, then {"error": ...} and [DONE]
    "overflow_event",  # HTTP 200, then the context error as an event (the native route's way)
    "clean_eof",  # text, then a regular end of the body: no usage, no [DONE]
    "truncated",  # the connection closes inside the chunked body
    "reset",  # the connection is reset after some text
    "broken_chunk",  # a chunk size that is no number
    "bad_json",
    "zero_tokens",
    "no_usage",
    "no_done",
    "early_stop",
    "wrong_usage",  # fewer tokens than chunks that had text
    "wrong_prompt",  # usage counts another prompt length
    "stall",  # text, then nothing for ever
    "wrong_type",  # HTTP 200 with JSON instead of a stream
    "http_503",
    "die",  # the process kills itself in the middle of an answer, as SGLang does after a scheduler crash
)


@dataclass
class Fault:
    """Applies to requests with min_output <= max_tokens <= max_output, at most `times` of them."""

    name: str
    min_output: int = 0
    max_output: int = 10**9
    times: int = 10**9
    after: int = 0  # matching requests that still go well
    seen: int = 0


@dataclass
class Behaviour:
    context: int = 2048
    tokens_per_chunk: int = 1
    chunk_s: float = 0.0005
    first_s: float = 0.001
    speculating: bool = False
    load_s: float = 0.0  # connection refused until then
    warm_s: float = 0.0  # then /health 503 until then
    crash_loading: bool = False
    faults: list[Fault] = field(default_factory=list)


def count_tokens(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]|\s", text))


class Handler(socketserver.StreamRequestHandler):
    server: SimServer

    def handle(self) -> None:
        while True:
            line = self.rfile.readline().decode("latin-1").strip()
            if not line:
                return
            method, path, _ = line.split(" ", 2)
            headers: dict[str, str] = {}
            while header := self.rfile.readline().decode("latin-1").strip():
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            body = self.rfile.read(int(headers.get("content-length", 0)))
            try:
                if not self.route(method, path, body):
                    return
            except (BrokenPipeError, ConnectionResetError):
                return

    def route(self, method: str, path: str, body: bytes) -> bool:
        """Whether the connection stays open."""
        behaviour = self.server.behaviour
        if method == "GET":
            replies: dict[str, Any] = {
                "/v1/models": {
                    "object": "list",
                    "data": [{"id": MODEL, "object": "model", "max_model_len": behaviour.context}],
                },
                "/server_info": {
                    "version": "0.5.23",
                    "context_length": behaviour.context,
                    "speculative_algorithm": "DDTREE" if behaviour.speculating else None,
                },
            }
            if path == "/health":
                warm = time.monotonic() >= self.server.warm_at
                return self.reply(200 if warm else 503, b"")
            if path in replies:
                return self.reply(200, json.dumps(replies[path]).encode())
            return self.reply(404, b"{}")
        asked = json.loads(body)
        if path == "/tokenize":
            n = count_tokens(asked["prompt"])
            found = {"tokens": list(range(n)), "count": n, "max_model_len": behaviour.context}
            return self.reply(200, json.dumps(found).encode())
        if path == "/v1/completions":
            return self.complete(asked)
        return self.reply(404, b"{}")

    def reply(self, status: int, body: bytes, kind: str = "application/json") -> bool:
        self.wfile.write(
            f"HTTP/1.1 {status} X\r\nserver: uvicorn\r\ncontent-length: {len(body)}\r\n"
            f"content-type: {kind}\r\n\r\n".encode()
            + body
        )
        return True

    def complete(self, asked: dict[str, Any]) -> bool:
        behaviour = self.server.behaviour
        prompt_tokens, output = count_tokens(asked["prompt"]), int(asked["max_tokens"])
        if prompt_tokens + output > behaviour.context:
            message = (
                f"Requested token count exceeds the model's maximum context length of {behaviour.context} "
                f"tokens. You requested a total of {prompt_tokens + output} tokens."
            )
            error = {"object": "error", "message": message, "type": "BadRequestError", "code": 400}
            return self.reply(400, json.dumps(error).encode())
        return Answer(self, asked, prompt_tokens, output, self.server.fault_for(output)).send()


class Answer:
    """One streamed completion, with at most one fault."""

    def __init__(
        self, handler: Handler, asked: dict[str, Any], prompt_tokens: int, output: int, fault: str | None
    ) -> None:
        self.handler = handler
        self.behaviour = handler.server.behaviour
        self.asked = asked
        self.prompt_tokens = prompt_tokens
        self.output = output
        self.fault = fault

    def send(self) -> bool:
        if self.fault == "http_503":
            return self.handler.reply(503, b'{"message": "scheduler is busy"}')
        if self.fault == "wrong_type":
            return self.handler.reply(200, b'{"choices": []}')
        self.write(
            b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        if self.fault == "overflow_event":
            self.error("The input (6000 tokens) is longer than the model's context length (2048 tokens).")
            return self.end(done=True)
        sent = self.text()
        if self.fault in {"clean_eof", "truncated", "reset", "broken_chunk", "stall", "die"}:
            return self.break_off()
        if self.fault == "error_event":
            self.error("CUDA error: an illegal instruction was encountered")
            return self.end(done=True)
        self.last_chunks(sent)
        return self.end(done=self.fault != "no_done")

    def text(self) -> int:
        """The text chunks; how many tokens they hold."""
        wanted = self.output
        if self.fault == "zero_tokens":
            wanted = 0
        elif self.fault == "early_stop":
            wanted = max(self.output // 4, 1)
        elif self.fault and self.fault not in {
            "wrong_usage",
            "wrong_prompt",
            "no_usage",
            "no_done",
            "bad_json",
        }:
            wanted = min(4, self.output)
        time.sleep(self.behaviour.first_s)
        sent = 0
        while sent < wanted:
            tokens = min(self.behaviour.tokens_per_chunk, wanted - sent)
            self.choice("tok " * tokens, None)
            sent += tokens
            if sent < wanted:
                time.sleep(self.behaviour.chunk_s)
        return sent

    def last_chunks(self, sent: int) -> None:
        self.choice("", "stop" if self.fault == "early_stop" else "length")
        if self.fault == "bad_json":
            self.event(b'{"choices": [')
        if self.behaviour.speculating and self.asked.get("return_spec_tokens_details"):
            steps = max(-(-sent // 3), 1)
            details = {
                "spec_verify_ct": steps,
                "spec_accept_length": sent / steps,
                "spec_num_correct_drafts": sent - steps,
                "spec_num_proposed_drafts": steps * 15,
            }
            self.chunk({"choices": [], "usage": None, "sglext": {"spec_tokens_details": details}})
        if self.fault == "no_usage":
            return
        counted = sent - 2 if self.fault == "wrong_usage" else sent
        prompt = self.prompt_tokens + (1 if self.fault == "wrong_prompt" else 0)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": counted,
            "total_tokens": prompt + counted,
            "prompt_tokens_details": {"cached_tokens": 0},
            "reasoning_tokens": 0,
        }
        self.chunk({"choices": [], "usage": usage})

    def break_off(self) -> bool:
        connection = self.handler.connection
        if self.fault == "clean_eof":
            return self.end(done=False)
        if self.fault == "broken_chunk":
            self.write(b"zz\r\n")
            return False
        if self.fault == "truncated":
            self.write(b"40\r\ndata: ")
        elif self.fault == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        elif self.fault == "die":
            sys.stderr.write(
                "Scheduler hit an exception: CUDA error: an illegal instruction was encountered\n"
            )
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault == "stall":
            self.handler.server.stopping.wait(60)
        return False

    def choice(self, text: str, finish: str | None) -> None:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "matched_stop": None}
        self.chunk({"choices": [choice], "usage": None})

    def error(self, message: str) -> None:
        self.event(json.dumps({"error": {"message": message, "type": "x", "code": 400}}).encode())

    def chunk(self, payload: dict[str, Any]) -> None:
        base = {"id": "0f1e", "object": "text_completion", "created": 1796063768, "model": MODEL}
        self.event(json.dumps({**base, **payload}).encode())

    def event(self, data: bytes) -> None:
        framed = b"data: " + data + b"\n\n"
        self.write(f"{len(framed):x}\r\n".encode() + framed + b"\r\n")

    def end(self, *, done: bool) -> bool:
        if done:
            self.event(b"[DONE]")
        self.write(b"0\r\n\r\n")
        return True

    def write(self, data: bytes) -> None:
        self.handler.wfile.write(data)


class SimServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.warm_at = time.monotonic() + behaviour.warm_s
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address

    def fault_for(self, output: int) -> str | None:
        with self._lock:
            for fault in self.behaviour.faults:
                if fault.min_output <= output <= fault.max_output:
                    fault.seen += 1
                    if fault.after < fault.seen <= fault.after + fault.times:
                        return fault.name
        return None

    def handle_error(self, *_: object) -> None:
        """A client that goes away is what half of these tests are about."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--behaviour", default="{}", help="JSON of Behaviour")
    options = parser.parse_args()
    raw = json.loads(options.behaviour)
    behaviour = Behaviour(**{**raw, "faults": [Fault(**fault) for fault in raw.get("faults", [])]})
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    time.sleep(behaviour.load_s)
    if behaviour.crash_loading:
        sys.stderr.write("RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB\n")
        sys.exit(1)
    with SimServer(options.port, behaviour) as server:
        server.serve_forever(0.05)


if __name__ == "__main__":
    main()
