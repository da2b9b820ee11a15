"""Replies of an SGLang-shaped server: asked for, read from a recording, and reduced to their shape."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SPECULATION = {"return_spec_tokens_details": True, "stream": True, "temperature": 0, "ignore_eos": True}
_LONG = "word " * 3000
# The request behind each recording (tests/data/sglang-http), by its name.
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat_stream_spec": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "import os\nimport sys\n"}],
            "max_tokens": 48,
            "stream_options": {"include_usage": True},
            **_SPECULATION,
        },
    ),
    "completions_stream_spec": (
        "/v1/completions",
        {
            "prompt": "import os\nimport sys\n",
            "max_tokens": 48,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **_SPECULATION,
        },
    ),
    "overflow_completions": ("/v1/completions", {"prompt": _LONG, "max_tokens": 8}),
    "overflow_by_output": ("/v1/completions", {"prompt": "import os\n", "max_tokens": 4000}),
    "overflow_generate_stream": (
        "/generate",
        {"text": _LONG, "sampling_params": {"max_new_tokens": 8}, "stream": True},
    ),
    "tokenize": ("/tokenize", {"prompt": "import os\nimport sys\n"}),
}


@dataclass(frozen=True)
class Reply:
    """What a client got."""

    status: int
    content_type: str
    body: bytes

    @classmethod
    def recorded(cls, path: Path) -> Reply:
        head, _, body = path.read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
        lines = head.decode().splitlines()
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        return cls(int(lines[0].split()[1]), headers.get("content-type", ""), body)

    @property
    def shape(self) -> list[Any]:
        """Status, kind, and the names in its JSON, in their order; what repeats itself is said once."""
        if not self.content_type.startswith("text/event-stream"):
            return [self.status, self.content_type, names(json.loads(self.body))]
        found: list[Any] = []
        for event in self.body.decode().strip().split("\n\n"):
            data = event.removeprefix("data: ")
            shape = data if data == "[DONE]" else names(json.loads(data))
            if not found or found[-1] != shape:
                found.append(shape)
        return [self.status, self.content_type, *found]


def names(value: Any) -> Any:
    """The keys of a JSON value, all the way down; what a list holds is told by its first element."""
    if isinstance(value, dict):
        return {key: names(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [names(each) for each in value[:1] if isinstance(each, dict)]
    return None


def ask(port: int, name: str, headers: Mapping[str, str], **changes: Any) -> Reply:
    path, body = REQUESTS[name]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(
            "POST",
            path,
            json.dumps({**body, **changes}),
            {"Content-Type": "application/json", **headers},
        )
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers.get("Content-Type", ""), answer.read())
    finally:
        connection.close()
