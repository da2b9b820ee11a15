"""What one streamed completion said: text, when it came, usage, how it ended. No judgement yet."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence  # noqa: TC003 - msgspec reads types when it runs
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from bench_runner.client.http1 import BrokenHttpError
from bench_runner.client.sse import events

if TYPE_CHECKING:
    from bench_runner.client.http1 import Response
    from bench_runner.client.transport import Exchange

HTTP_OK = 200

# How SGLang and llama.cpp word a request that doesn't fit the context.
_OVERFLOW = re.compile(
    r"maximum context length|longer than the model's context length"
    r"|exceed_context_size|exceeds the available context",
    re.IGNORECASE,
)


class Usage(Struct, frozen=True):
    """The server's own count; the only one that is used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None

    @property
    def cached_tokens(self) -> int | None:
        cached = (self.prompt_tokens_details or {}).get("cached_tokens")
        return cached if isinstance(cached, int) else None


class Stream(Struct, kw_only=True):
    """`chunks_ns` are the arrivals of chunks that carry text or reasoning; several tokens may be in one.

    `content_ns` is the first of them with text of the answer itself, `text` the answer without its reasoning.
    """

    sent_ns: int
    end_ns: int
    chunks_ns: Sequence[int] = ()
    content_ns: int | None = None
    text: str = ""
    usage: Usage | None = None
    finish_reason: str | None = None
    timings: dict[str, Any] | None = None  # llama.cpp, in the last chunk
    spec_tokens_details: dict[str, Any] | None = None  # SGLang, in a chunk of its own
    fault: str | None = None
    fault_detail: str = ""


class _Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None  # SGLang, llama.cpp
    reasoning: str | None = None  # vLLM
    tool_calls: list[Any] | None = None


class _Choice(Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _SglExt(Struct):
    spec_tokens_details: dict[str, Any] | None = None


class _Chunk(Struct):
    choices: list[_Choice] = field(default_factory=list)
    usage: Usage | None = None
    timings: dict[str, Any] | None = None
    sglext: _SglExt | None = None
    error: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)


def read_stream(exchange: Exchange) -> Stream:
    """Parse after the stream has ended, so that parsing delays no stamp."""
    stream = Stream(sent_ns=exchange.sent_ns, end_ns=exchange.end_ns)
    response = exchange.response
    try:
        response.settle()
    except BrokenHttpError as exc:
        return _faulty(stream, "broken_http", str(exc))
    if response.status is None:
        return _faulty(stream, exchange.fault or "truncated", exchange.fault_detail)
    if response.status != HTTP_OK:
        message = _message(response.body())
        code = "context_overflow" if _OVERFLOW.search(message) else f"http_{response.status}"
        return _faulty(stream, code, message)
    if "text/event-stream" not in response.headers.get("content-type", ""):
        found = response.headers.get("content-type", "none")
        return _faulty(stream, "wrong_content_type", f"{found}: {_message(response.body())}")
    done = _take_events(stream, response)
    if not stream.fault and exchange.fault:
        _faulty(stream, exchange.fault, exchange.fault_detail)
    elif not stream.fault and not done:
        _faulty(stream, "no_done", "the stream ended without [DONE]")
    return stream


def _take_events(stream: Stream, response: Response) -> bool:
    """Fill in what the events say; whether the closing mark came."""
    texts: list[str] = []
    arrivals = array("q")  # for a thousand answers a list of numbers is large
    stream.chunks_ns = arrivals
    done = False
    for event in events(response.pieces):
        if event.data == b"[DONE]":
            done = True
            continue
        try:
            chunk = _CHUNK.decode(event.data)
        except msgspec.DecodeError as exc:
            shown = event.data[:80].decode(errors="replace")
            _faulty(stream, "bad_json", f"{exc}: {shown}")
            break
        if chunk.error is not None or event.event == b"error":
            message = _message(event.data)
            _faulty(stream, "context_overflow" if _OVERFLOW.search(message) else "error_event", message)
            break
        for choice in chunk.choices:
            delta = choice.delta
            text = choice.text or (delta.content if delta else None)
            if text:
                texts.append(text)
                if stream.content_ns is None:
                    stream.content_ns = event.at_ns
            if text or (delta and (delta.reasoning_content or delta.reasoning or delta.tool_calls)):
                arrivals.append(event.at_ns)
            stream.finish_reason = choice.finish_reason or stream.finish_reason
        stream.usage = chunk.usage or stream.usage
        stream.timings = chunk.timings or stream.timings
        if chunk.sglext and chunk.sglext.spec_tokens_details:
            stream.spec_tokens_details = chunk.sglext.spec_tokens_details
    stream.text = "".join(texts)
    return done


def _faulty(stream: Stream, code: str, detail: str) -> Stream:
    stream.fault, stream.fault_detail = code, detail[:200]
    return stream


def _message(body: bytes) -> str:
    """The error's sentence, wherever this server puts it."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace").strip() or "no message"
    if isinstance(found, dict):
        error = found.get("error", found)
        if isinstance(error, dict):
            kind = error.get("type")
            return f"{error.get('message', 'no message')}" + (f" ({kind})" if kind else "")
        return str(error)
    return str(found)[:200]
