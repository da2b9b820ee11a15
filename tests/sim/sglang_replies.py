"""What SGLang 0.5.23 says: the recorded replies' keys, filled with the simulator's values."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[1] / "data/sglang-http"
MODEL = "sim"
CREATED = 1796063768
DRAFT = 15


@cache
def body(name: str) -> bytes:
    """A recorded GET's body."""
    return (RECORDED / f"{name}.body").read_bytes()


def models(context: int) -> dict[str, Any]:
    found = json.loads(body("v1_models"))
    found["data"][0].update(id=MODEL, root=MODEL, max_model_len=context)
    return dict(found)


def model_info() -> dict[str, Any]:
    return {**json.loads(body("model_info")), "model_path": "/dev/shm/sim", "served_model_name": MODEL}


def server_info(context: int, *, speculating: bool) -> dict[str, Any]:
    found = json.loads(body("server_info"))
    algorithm = "DDTREE" if speculating else None
    return {
        **found,
        "served_model_name": MODEL,
        "context_length": context,
        "speculative_algorithm": algorithm,
    }


def loads() -> dict[str, Any]:
    return dict(json.loads(body("v1_loads")))


def metrics(prompt_tokens: int, generated: int) -> bytes:
    """The recorded text, with the token counters at their true values."""
    text = body("metrics").decode()
    counter = re.search(r'(?m)^sglang:realtime_tokens_total\{.*mode="prefill_compute".*$', text)
    if counter is None:
        raise ValueError("the recorded metrics have no token counter")
    named = counter.group().rpartition(" ")[0]
    lines = [f"{named} {float(prompt_tokens)}"]
    if generated:
        lines.append(f"{named.replace('prefill_compute', 'decode')} {float(generated)}")
    return text.replace(counter.group(), "\n".join(lines)).encode()


def too_long(tokens: int, context: int) -> str:
    return f"The input ({tokens} tokens) is longer than the model's context length ({context} tokens)."


def too_much(prompt: int, output: int, context: int) -> str:
    return (
        f"Requested token count exceeds the model's maximum context length of {context} tokens. "
        f"You requested a total of {prompt + output} tokens: {prompt} tokens from the input messages and "
        f"{output} tokens for the completion. Please reduce the number of tokens in the input messages or "
        "the completion to fit within the limit."
    )


def openai_error(message: str, kind: str = "BadRequestError") -> dict[str, Any]:
    return {"object": "error", "message": message, "type": kind, "param": None, "code": 400}


def event_error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}}


@dataclass
class Reply:
    """One completion's identity and what it counts; each method gives one event or body."""

    chat: bool
    model: str
    prompt_tokens: int
    sent: int = 0
    each_usage: bool = False
    prompt_counted: int | None = None
    ids: list[int] = field(default_factory=list)

    def chunk(self, text: str, finish: str | None, *, first: bool = False) -> dict[str, Any]:
        if self.chat:
            delta: dict[str, Any] = {"reasoning_content": None}
            if first:
                delta.update(role="assistant", content="")
            elif finish is None:
                delta["content"] = text
            return self._whole([{"index": 0, "delta": delta, **_ending(finish)}])
        usage = None
        if self.each_usage:
            usage = {**self.usage(), "prompt_tokens_details": None, "completion_tokens_details": None}
        return {**self._whole([{"index": 0, "text": text, **_ending(finish)}]), "usage": usage}

    def speculation(self) -> dict[str, Any]:
        details = speculation(self.sent)
        return {**self._whole([]), "usage": None, "sglext": {"spec_tokens_details": details}}

    def last(self, counted: int) -> dict[str, Any]:
        usage = self.usage(counted)
        return {
            **self._whole([]),
            "usage": {**usage, "completion_tokens_details": None} if self.chat else usage,
        }

    def usage(self, counted: int | None = None) -> dict[str, Any]:
        completion = self.sent if counted is None else counted
        prompt = self.prompt_tokens if self.prompt_counted is None else self.prompt_counted
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": 0},
            "reasoning_tokens": 0,
        }

    def at_once(self, text: str) -> dict[str, Any]:
        """The answer to a request without a stream."""
        version = {"version": "default", "start": 0, "end": self.sent}
        return {
            **self._whole([{"index": 0, "text": text, **_ending("length")}]),
            "usage": {**self.usage(), "completion_tokens_details": None},
            "metadata": {"weight_version": "default", "weight_versions": [version]},
        }

    def generated(self, text: str, *, whole: bool, speculating: bool, streamed: bool) -> dict[str, Any]:
        """The native route's answer, or one of its events: each has all of the text so far."""
        info: dict[str, Any] = {
            "id": "87c5b97f30974bf189fb509fd43c16a4",
            "finish_reason": {"type": "length", "length": self.sent} if whole else None,
            "prompt_tokens": self.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "storage_prefetch_wait": 0.0,
            "storage_staging_wait": 0.0,
            "forward_entry_time": 1796063771.25,
            "prefill_finished_time": 1796063771.27,
            "queue_time": 0.0005,
            "reasoning_tokens": 0,
            "completion_tokens": self.sent,
            "cached_tokens": 0,
            "cached_tokens_details": {"device": 0, "host": 0},
            "dp_rank": None,
        }
        if whole:
            spoken = speculation(self.sent) if speculating else {}
            info |= {
                "weight_versions": [{"version": "default", "start": 0, "end": self.sent}],
                "e2e_latency": 0.065,
                **{key: value for key, value in spoken.items() if key not in _CHAT_ONLY},
                "request_received_ts": 1796063771.25,
                "first_token_latency": 0.019,
                "api_server_dispatch_finish_ts": 1796063771.25,
                "response_sent_to_client_ts": 1796063771.27,
                "request_finished_ts": 1796063771.31,
                "decode_throughput": 491.0,
            }
        elif streamed and len(self.ids) == 0:
            info["response_sent_to_client_ts"] = 1796063771.27
        self.ids = list(range(self.sent))
        return {"text": text, "output_ids": self.ids, "meta_info": info}

    def _whole(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        base = {"id": "0f1e" * 8, "object": kind, "created": CREATED, "model": self.model}
        return {**base, "choices": choices}


_CHAT_ONLY = {"spec_cap_length", "spec_block_accept_length", "spec_cap_lens_histogram"}


def speculation(sent: int) -> dict[str, Any]:
    """Every verify step gives three tokens."""
    steps = max(-(-sent // 3), 1)
    return {
        "spec_accept_rate": (sent - steps) / (steps * DRAFT),
        "spec_accept_length": sent / steps,
        "spec_cap_length": 0.0,
        "spec_block_accept_length": 0.0,
        "spec_num_correct_drafts": sent - steps,
        "spec_num_proposed_drafts": steps * DRAFT,
        "spec_verify_ct": steps,
        "spec_correct_drafts_histogram": [0, 0, steps],
        "spec_cap_lens_histogram": [],
    }


def _ending(finish: str | None) -> dict[str, Any]:
    return {"logprobs": None, "finish_reason": finish, "matched_stop": None}
