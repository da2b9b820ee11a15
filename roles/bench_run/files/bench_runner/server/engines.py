"""The engines' dialects: what differs between servers that all speak the completions API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec
import requests
from msgspec import Struct, field

from bench_runner.errors import ServerError
from bench_runner.metrics import Speculation
from bench_runner.quirks.versions import numbers
from bench_runner.server.api_key import authorization

if TYPE_CHECKING:
    from bench_runner.client.stream import Stream
    from bench_runner.deployment import Deployment

PROBE_TIMEOUT_S = 10.0
TOKENIZE_TIMEOUT_S = 60.0


class Served(Struct, frozen=True, kw_only=True):
    """What the server says of itself once it is up; None where it doesn't."""

    context_tokens: int | None = None
    build: str | None = None
    speculating: bool | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


class Engine(ABC):
    """The part that SGLang and llama.cpp share."""

    path = "/v1/completions"

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.session = requests.Session()
        self.session.trust_env = False  # a proxy for the world isn't one for this machine
        self.headers = authorization(deployment)
        self.session.headers.update(self.headers)
        self.served = Served()

    def is_ready(self) -> bool:
        """Models first: cheap, while SGLang's health generates a token and piles up when asked often."""
        return self._lists_model() and self._status("/health") == requests.codes.ok

    def health(self) -> int | None:
        """The status of the health route; None where nobody answers."""
        return self._status("/health")

    def look(self) -> None:
        """Keep what the server says of itself. Asked once, after it is ready and before it is measured."""
        self.served = self._describe()

    def tokens(self, text: str) -> int:
        """How many tokens the server makes of a prompt."""
        path, body = self._tokenize_request(text)
        try:
            reply = self.session.post(self._url(path), json=body, timeout=TOKENIZE_TIMEOUT_S)
        except requests.RequestException as exc:
            raise ServerError("no_tokenizer", f"{path}: {_short(exc)}") from exc
        if reply.status_code != requests.codes.ok:
            raise ServerError("no_tokenizer", f"{path}: HTTP {reply.status_code}: {reply.text[:120]}")
        try:
            return len(reply.json()["tokens"])
        except (ValueError, KeyError, TypeError) as exc:
            raise ServerError("no_tokenizer", f"{path}: no tokens in the answer: {reply.text[:120]}") from exc

    def request_body(self, prompt: str, output_tokens: int) -> bytes:
        """Greedy and of a fixed length: the same work for every configuration."""
        return msgspec.json.encode(
            {
                "model": self.deployment.served_model,
                "prompt": prompt,
                "max_tokens": output_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
                **self._extra_body(),
            }
        )

    @abstractmethod
    def speculation(self, stream: Stream) -> Speculation | None:
        """What the engine said of one request; None where it said nothing."""

    def why_another_build(self) -> str | None:
        """A sentence where the server says that it is not the build that its description names."""
        return None

    def close(self) -> None:
        self.session.close()

    @abstractmethod
    def _describe(self) -> Served:
        """What the running server says of itself."""

    @abstractmethod
    def _tokenize_request(self, text: str) -> tuple[str, dict[str, Any]]:
        """Path and body of the request that tokenizes a text."""

    def _extra_body(self) -> dict[str, Any]:
        return {}

    def _lists_model(self) -> bool:
        listed = self._json("/v1/models")
        models = listed.get("data", []) if listed else []
        return any(model.get("id") == self.deployment.served_model for model in models)

    def _url(self, path: str) -> str:
        return self.deployment.url.rstrip("/") + path

    def _status(self, path: str) -> int | None:
        try:
            return self.session.get(self._url(path), timeout=PROBE_TIMEOUT_S).status_code
        except requests.RequestException:
            return None

    def _json(self, path: str) -> dict[str, Any] | None:
        """A GET that may fail: what isn't said is None."""
        try:
            reply = self.session.get(self._url(path), timeout=PROBE_TIMEOUT_S)
            found = reply.json() if reply.status_code == requests.codes.ok else None
        except (requests.RequestException, ValueError):
            return None
        return found if isinstance(found, dict) else None


class LlamaCpp(Engine):
    """llama.cpp's server: speculation in the last chunk's `timings`, and only when something was drafted."""

    def speculation(self, stream: Stream) -> Speculation | None:
        timings = stream.timings or {}
        predicted, drafted = timings.get("predicted_n"), timings.get("draft_n")
        if not isinstance(predicted, int):
            return None
        if drafted is None and not self.served.speculating:
            return None
        accepted = int(timings.get("draft_n_accepted", 0))
        # The first token comes from the prompt's own step; each later step gives one and the accepted drafts.
        return Speculation(
            verify_steps=predicted - 1 - accepted, draft_tokens=int(drafted or 0), accepted_drafts=accepted
        )

    def _describe(self) -> Served:
        props = self._json("/props") or {}
        slots = self._slots()
        return Served(
            context_tokens=(props.get("default_generation_settings") or {}).get("n_ctx"),
            build=props.get("build_info"),
            speculating=any(slot.get("speculative") for slot in slots) if slots else None,
            arguments={
                key: props[key] for key in ("total_slots", "model_path", "model_ftype") if key in props
            },
        )

    def _slots(self) -> list[dict[str, Any]]:
        try:
            found = self.session.get(self._url("/slots"), timeout=PROBE_TIMEOUT_S).json()
        except (requests.RequestException, ValueError):
            return []
        return found if isinstance(found, list) else []

    def _tokenize_request(self, text: str) -> tuple[str, dict[str, Any]]:
        return "/tokenize", {"content": text, "add_special": True}


class SGLang(Engine):
    """SGLang: speculation in a chunk of its own, when asked for."""

    def speculation(self, stream: Stream) -> Speculation | None:
        details = stream.spec_tokens_details or {}
        steps = details.get("spec_verify_ct")
        if not isinstance(steps, int) or not steps:
            return None
        return Speculation(
            verify_steps=steps,
            draft_tokens=details.get("spec_num_proposed_drafts"),
            accepted_drafts=details.get("spec_num_correct_drafts"),
        )

    def why_another_build(self) -> str | None:
        """A package's version; a checkout is named by its commit, and its package's record may be older."""
        described = self.deployment.engine_build or ""
        wanted, found = _release(described), _release(self.served.build or "")
        if not described.startswith("sglang ") or " git " in described or None in {wanted, found}:
            return None
        if wanted == found:
            return None
        return (
            f"the server says that it is {self.served.build}, deployed was {described}: its numbers would be "
            f"another build's. Deploy again (deploy.yml)"
        )

    def _describe(self) -> Served:
        info = self._json("/server_info") or self._json("/get_server_info") or {}
        models = (self._json("/v1/models") or {}).get("data", [])
        context = next((model.get("max_model_len") for model in models), None)
        algorithm = info.get("speculative_algorithm")
        keys = [
            key for key in info if key.startswith(("speculative_", "mamba_", "cuda_graph_", "max_", "mem_"))
        ]
        more = [
            "tp_size",
            "attention_backend",
            "disable_radix_cache",
            "dtype",
            "quantization",
            "kv_cache_dtype",
        ]
        return Served(
            context_tokens=context if context is not None else info.get("context_length"),
            build=info.get("version"),
            speculating=algorithm is not None if "speculative_algorithm" in info else None,
            arguments={key: info[key] for key in sorted({*keys, *more}) if info.get(key) is not None},
        )

    def _tokenize_request(self, text: str) -> tuple[str, dict[str, Any]]:
        return "/tokenize", {
            "model": self.deployment.served_model,
            "prompt": text,
            "add_special_tokens": True,
        }

    def _extra_body(self) -> dict[str, Any]:
        return {"return_spec_tokens_details": True}


ENGINES: dict[str, type[Engine]] = {"llamacpp": LlamaCpp, "sglang": SGLang}


def _release(build: str) -> tuple[int, ...] | None:
    """The release in a version; 0.0.0 is what a build without one says."""
    found = numbers(build)
    return found if found and any(found) else None


def _short(exc: Exception) -> str:
    """Requests' sentences carry the whole chain; the last cause says it."""
    text = str(exc)
    return text.rsplit(":", 1)[-1].strip(" '\")>") or type(exc).__name__
