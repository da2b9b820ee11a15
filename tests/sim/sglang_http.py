"""The routes of the simulated SGLang and its streamed answers, each with at most one fault."""

from __future__ import annotations

import json
import re
import socket
import socketserver
import struct
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from tests.sim import sglang_replies as replies
from tests.sim.sglang_faults import BROKEN, DEADLY, REFUSED, Fault, decode_line

if TYPE_CHECKING:
    from tests.sim.sglang_shaped import SimServer

STREAM = "text/event-stream; charset=utf-8"
DECODE_EVERY = 40
JSON_TYPE = "application/json"
PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}
FLUSHED = (
    b"Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting "
    b"requests, the operation will not be performed.)\n"
)
BAD_JSON = "1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 9), 'msg': 'JSON decode error'}"


def count_tokens(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]|\s", text))


def prompt_of(asked: dict[str, Any]) -> str:
    """The text that is counted, whichever route it came by."""
    if "messages" in asked:
        return "".join(str(message["content"]) for message in asked["messages"])
    return str(asked.get("prompt", asked.get("text", "")))


def common_headers() -> str:
    return f"date: {formatdate(usegmt=True)}\r\nserver: uvicorn\r\n"


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
        if method == "GET":
            return self.get(path)
        if path in {"/flush_cache", "/abort_request"}:
            return self.reply(200, FLUSHED if path == "/flush_cache" else b"", kind="")
        try:
            asked = json.loads(body)
        except ValueError:
            return self.reply(400, json.dumps(replies.openai_error(BAD_JSON, "Bad Request")).encode())
        if path in {"/tokenize", "/v1/tokenize"}:
            n = count_tokens(asked["prompt"])
            found = {"tokens": list(range(n)), "count": n, "max_model_len": self.server.behaviour.context}
            return self.reply(200, json.dumps(found).encode())
        if path in {"/v1/completions", "/v1/chat/completions", "/generate"}:
            return self.complete(path, asked)
        return self.reply(404, b'{"detail":"Not Found"}')

    def get(self, path: str) -> bool:
        behaviour, server = self.server.behaviour, self.server
        if path in {"/health", "/health_generate", "/ready"}:
            warm = time.monotonic() >= server.warm_at
            busy = behaviour.busy_503 and server.reading > 0
            return self.reply(200 if warm and not busy else 503, b"", kind="")
        made = {
            "/v1/models": lambda: replies.models(behaviour.context),
            "/model_info": replies.model_info,
            "/server_info": lambda: replies.server_info(behaviour.context, speculating=behaviour.speculating),
            "/v1/loads": replies.loads,
        }
        if path in made:
            return self.reply(200, json.dumps(made[path]()).encode())
        if path == "/metrics":
            found = replies.metrics(server.prompt_tokens, server.generated)
            return self.reply(200, found, kind="text/plain; version=0.0.4; charset=utf-8")
        return self.reply(404, b'{"detail":"Not Found"}')

    def reply(self, status: int, body: bytes, kind: str = JSON_TYPE) -> bool:
        content_type = f"content-type: {kind}\r\n" if kind else ""
        self.wfile.write(
            f"HTTP/1.1 {status} {PHRASES.get(status, 'X')}\r\n{common_headers()}"
            f"content-length: {len(body)}\r\n{content_type}vary: Origin\r\n\r\n".encode()
            + body
        )
        return True

    def complete(self, path: str, asked: dict[str, Any]) -> bool:
        behaviour = self.server.behaviour
        limit = behaviour.enforced_context or behaviour.context
        native = path == "/generate"
        prompt_tokens = count_tokens(prompt_of(asked))
        wanted = asked["sampling_params"]["max_new_tokens"] if native else asked["max_tokens"]
        output = int(wanted)
        message = ""
        if prompt_tokens > limit:
            message = replies.too_long(prompt_tokens, limit)
        elif prompt_tokens + output > limit:
            message = replies.too_much(prompt_tokens, output, limit)
        if message and native:
            if asked.get("stream"):
                answer = Answer(self, path, asked, prompt_tokens, output, None)
                answer.head()
                answer.error(message)
                return answer.end(done=True)
            return self.reply(400, json.dumps({"error": {"message": message}}).encode())
        if message:
            return self.reply(400, json.dumps(replies.openai_error(message)).encode())
        return Answer(self, path, asked, prompt_tokens, output, self.server.fault_for(output)).send()


class Answer:
    """One completion, with at most one fault."""

    def __init__(  # noqa: PLR0913, PLR0917 - one request has that many sides
        self,
        handler: Handler,
        path: str,
        asked: dict[str, Any],
        prompt_tokens: int,
        output: int,
        fault: Fault | None,
    ) -> None:
        self.handler = handler
        self.behaviour = handler.server.behaviour
        self.native = path == "/generate"
        self.asked = asked
        self.output = output
        self.fault = fault.name if fault else None
        self.at_token = fault.at_token if fault else 0
        options = asked.get("stream_options") or {}
        self.say = replies.Reply(
            chat=path.endswith("chat/completions"),
            model=asked.get("model", replies.MODEL),
            prompt_tokens=prompt_tokens,
            each_usage=bool(options.get("continuous_usage_stats")),
            prompt_counted=prompt_tokens + 1 if self.fault == "wrong_prompt" else None,
        )
        self.made = ""

    def send(self) -> bool:  # noqa: PLR0911 - one return a way to answer
        if self.fault == "http_503":
            return self.handler.reply(503, b'{"message": "scheduler is busy"}')
        if self.fault == "wrong_type":
            return self.handler.reply(200, b'{"choices": []}')
        with self.handler.server.reading_a_prompt(self.say.prompt_tokens):
            time.sleep(self.behaviour.first_s)
        if not self.asked.get("stream"):
            return self.at_once()
        self.head()
        if self.fault == "overflow_event":
            self.error(replies.too_long(6000, 2048))
            return self.end(done=True)
        self.text()
        if self.fault == "error_event":
            self.error("CUDA error: an illegal instruction was encountered")
            return self.end(done=True)
        if self.fault in {*BROKEN, *DEADLY}:
            return self.break_off()
        self.last_chunks()
        return self.end(done=self.fault != "no_done")

    def head(self) -> None:
        head = f"HTTP/1.1 200 OK\r\n{common_headers()}content-type: {STREAM}\r\nvary: Origin\r\n"
        self.handler.wfile.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())

    def at_once(self) -> bool:
        self.say.sent, self.made = self.output, "tok " * self.output
        self.handler.server.count(self.output)
        if self.native:
            speculating = self.behaviour.speculating
            found = self.say.generated(self.made, whole=True, speculating=speculating, streamed=False)
        else:
            found = self.say.at_once(self.made)
        return self.handler.reply(200, json.dumps(found).encode())

    def text(self) -> None:
        """The text chunks; the last one names the finish reason, in a chat a chunk of its own does."""
        wanted = {"zero_tokens": 0, "early_stop": max(self.output // 4, 1)}.get(self.fault or "", self.output)
        if self.fault in {*BROKEN, *DEADLY, *REFUSED}:
            wanted = min(self.at_token, self.output)
        finish = "stop" if self.fault == "early_stop" else "length"
        if self.say.chat:
            self.event(self.say.chunk("", None, first=True))
        elif self.behaviour.empty_first or not wanted:
            self.event(self.say.chunk("", None if wanted else finish))
        while self.say.sent < wanted:
            tokens = min(self.behaviour.tokens_per_chunk, wanted - self.say.sent)
            before, self.say.sent = self.say.sent, self.say.sent + tokens
            if before // DECODE_EVERY != self.say.sent // DECODE_EVERY:
                decode_line(self.say.sent, speculating=self.behaviour.speculating)
            ends = self.say.sent == self.output or (self.fault == "early_stop" and self.say.sent == wanted)
            self.piece("!" * tokens if self.fault == "garbage" else "tok " * tokens, finish if ends else None)
            self.handler.server.count(tokens)
            if self.say.sent < wanted:
                time.sleep(self.behaviour.chunk_s)
        if self.say.chat:
            self.event(self.say.chunk("", finish))

    def piece(self, text: str, finish: str | None) -> None:
        self.made += text
        if self.native:
            speculating = self.behaviour.speculating
            whole = finish is not None
            self.event(self.say.generated(self.made, whole=whole, speculating=speculating, streamed=True))
        else:
            self.event(self.say.chunk(text, None if self.say.chat else finish))

    def last_chunks(self) -> None:
        if self.fault == "bad_json":
            self.raw_event(b'{"choices": [')
        if self.native:
            return
        if self.behaviour.speculating and self.asked.get("return_spec_tokens_details"):
            self.event(self.say.speculation())
        wanted = (self.asked.get("stream_options") or {}).get("include_usage")
        if wanted and self.fault != "no_usage":
            self.event(self.say.last(self.say.sent - 2 if self.fault == "wrong_usage" else self.say.sent))

    def break_off(self) -> bool:
        connection = self.handler.connection
        if self.fault in {"clean_eof", "die_clean"}:
            self.end(done=False)
        elif self.fault == "broken_chunk":
            self.handler.wfile.write(b"zz\r\n")
        elif self.fault in {"truncated", "die_in_chunk"}:
            self.handler.wfile.write(b"40\r\ndata: ")
        elif self.fault == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        elif self.fault == "stall":
            self.handler.server.stopping.wait(60)
        if self.fault in DEADLY:
            self.handler.server.die(connection)
        return self.fault == "clean_eof"

    def error(self, message: str) -> None:
        self.event(replies.event_error(message))

    def event(self, payload: dict[str, Any]) -> None:
        self.raw_event(json.dumps(payload).encode())

    def raw_event(self, data: bytes) -> None:
        framed = b"data: " + data + b"\n\n"
        self.handler.wfile.write(f"{len(framed):x}\r\n".encode() + framed + b"\r\n")

    def end(self, *, done: bool) -> bool:
        if done:
            self.raw_event(b"[DONE]")
        self.handler.wfile.write(b"0\r\n\r\n")
        return True
