"""Whether one answer is what was asked for; each way it isn't has a code of its own."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from bench_runner.client.stream import Stream

# The answer came whole and can be counted, but isn't what was asked: a measurement of something else.
DEVIATIONS = frozenset(
    {
        "early_stop",
        "too_many_tokens",
        "no_finish_reason",
        "prompt_length_differs",
        "usage_below_chunks",
        "usage_inconsistent",
        "garbage_text",
    }
)

# The connection broke or was refused: the first thing to ask is whether the server still lives.
BROKEN_CONNECTION = frozenset({"refused", "connect_failed", "send_failed", "reset", "truncated", "no_done"})

# What a client saw of servers that died a moment later.
FORETELLS_DEATH = BROKEN_CONNECTION | {"error_event", "zero_tokens", "no_usage", "stalled"}

# A server that answers so to a short request doesn't generate, whatever its health says.
_CANNOT_GENERATE = FORETELLS_DEATH - {"no_usage"} | {"timed_out", "no_content", "no_tokenizer"}

# A text that long of nothing but one mark is no text: models say so whose numbers have become NaN (token 0,
# "!" in many vocabularies). Broken characters are no sign: a model with random weights says them too.
_TELLING_CHARS = 24


def cannot_generate(code: str) -> bool:
    return code in _CANNOT_GENERATE or code.startswith("http_5")


class Fault(Struct, frozen=True):
    code: str
    detail: str


def judge(  # noqa: C901, PLR0911 - one return a verdict, the gravest first
    stream: Stream, *, prompt_tokens: int, output_tokens: int
) -> Fault | None:
    """None where the answer may be counted as ok."""
    if stream.fault:
        return Fault(stream.fault, stream.fault_detail)
    usage = stream.usage
    if usage is None:
        return Fault("no_usage", "the stream gave no usage; tokens aren't guessed from chunks")
    if usage.completion_tokens == 0:
        return Fault("zero_tokens", f"0 of {output_tokens} tokens")
    if not stream.chunks_ns:
        return Fault("no_content", f"usage says {usage.completion_tokens} tokens, no text came")
    if usage.total_tokens not in {None, usage.prompt_tokens + usage.completion_tokens}:
        return Fault(
            "usage_inconsistent",
            f"total {usage.total_tokens} is not {usage.prompt_tokens} + {usage.completion_tokens}",
        )
    if usage.completion_tokens < len(stream.chunks_ns):
        return Fault(
            "usage_below_chunks",
            f"usage says {usage.completion_tokens} tokens, {len(stream.chunks_ns)} chunks had text",
        )
    if usage.prompt_tokens != prompt_tokens:
        return Fault(
            "prompt_length_differs", f"usage says {usage.prompt_tokens} tokens, planned were {prompt_tokens}"
        )
    if stream.finish_reason is None:
        return Fault("no_finish_reason", "the stream named no finish reason")
    if usage.completion_tokens > output_tokens:
        return Fault("too_many_tokens", f"{usage.completion_tokens} of {output_tokens} tokens")
    if usage.completion_tokens < output_tokens or stream.finish_reason != "length":
        return Fault(
            "early_stop",
            f"{usage.completion_tokens} of {output_tokens} tokens, finish reason {stream.finish_reason!r}",
        )
    if is_garbage(stream.text):
        return Fault(
            "garbage_text", f"{usage.completion_tokens} tokens, but no text: {stream.text[:40]!r}..."
        )
    return None


def is_garbage(text: str) -> bool:
    """Only what no working model says; whether greedy text is right, a comparison with the baseline shows."""
    letters = "".join(text.split())
    return len(letters) >= _TELLING_CHARS and len(set(letters)) == 1 and letters[0] in string.punctuation
