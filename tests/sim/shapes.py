"""Replies reduced to their shape: by it the simulator, a running SGLang and the recordings are compared."""

import http.client
import json
import re
from itertools import groupby
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[1] / "data/sglang-http"
SPEC = {"stream": True, "return_spec_tokens_details": True}
USAGE = {"stream_options": {"include_usage": True}}
EACH = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
LONG = "x " * 3000
MESSAGES = [{"role": "user", "content": "a b c"}]

# What was asked when each reply was recorded.
REQUESTS = {
    "abort_all": ("/abort_request", {"abort_all": True}),
    "bad_json": ("/v1/completions", b'{"model":'),
    "chat_stream_spec": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 48, **SPEC, **USAGE}),
    "completions_stream_spec": ("/v1/completions", {"prompt": "a b", "max_tokens": 48, **SPEC, **EACH}),
    "crash_mid_stream": ("/v1/completions", {"prompt": "a b", "max_tokens": 400, **SPEC, **USAGE}),
    "flush_cache": ("/flush_cache", {}),
    "generate_nonstream": ("/generate", {"text": "a b c d", "sampling_params": {"max_new_tokens": 32}}),
    "generate_stream": (
        "/generate",
        {"text": "a b c d", "sampling_params": {"max_new_tokens": 24}, "stream": True},
    ),
    "overflow_by_output": ("/v1/completions", {"prompt": "a", "max_tokens": 4000}),
    "overflow_chat_stream": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": LONG}], "max_tokens": 8, "stream": True},
    ),
    "overflow_completions": ("/v1/completions", {"prompt": LONG, "max_tokens": 8}),
    "overflow_generate": ("/generate", {"text": LONG, "sampling_params": {"max_new_tokens": 8}}),
    "overflow_generate_stream": (
        "/generate",
        {"text": LONG, "sampling_params": {"max_new_tokens": 8}, "stream": True},
    ),
    "tokenize": ("/tokenize", {"prompt": "def f(x): return"}),
    "v1_tokenize": ("/v1/tokenize", {"prompt": "def f(x): return"}),
    "wrong_model": ("/v1/completions", {"model": "nope", "prompt": "a", "max_tokens": 4}),
}
BODIES = {
    name: f"/{name.replace('v1_', 'v1/')}" for name in ("model_info", "server_info", "v1_loads", "v1_models")
}


def shape(value):
    """Keys all the way down; of a list its first item stands for all."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value and isinstance(value[0], dict) else []
    return None


def shapes(status, headers, body):
    """A reply without its values: status, names of headers, of a stream its events with repeats folded."""
    names = sorted(name.lower() for name in headers)
    if b"data: " not in body:
        return status, names, shape(json.loads(body)) if body.startswith(b"{") else body.rstrip(b"\n")
    events = re.findall(rb"data: (.*)\n\n", body)
    parsed = ["[DONE]" if event == b"[DONE]" else json.dumps(shape(json.loads(event))) for event in events]
    return status, names, [event for event, _ in groupby(parsed)]


def recorded(name):
    head, _, body = (RECORDED / f"{name}.http").read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
    first, *lines = head.decode().splitlines()
    headers = [line.partition(":")[0] for line in lines]
    return shapes(int(first.split()[1]), headers, body)


def ask(port, path, asked, **headers):
    """Status, names of headers and body of a reply, of what came of it where it was cut short."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        raw = asked if isinstance(asked, bytes) or asked is None else json.dumps(asked).encode()
        headers = {"Content-Type": "application/json", **headers}
        connection.request("GET" if asked is None else "POST", path, raw, headers)
        reply = connection.getresponse()
        try:
            body = reply.read()
        except http.client.IncompleteRead as exc:
            body = exc.partial
        return reply.status, [name for name, _ in reply.getheaders()], body
    finally:
        connection.close()
