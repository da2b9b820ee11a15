"""How the simulated SGLang behaves: its speed and size, what it logs, what breaks in it, and how it dies."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any

# Whole answers that are wrong.
WRONG = (
    "zero_tokens",
    "no_usage",
    "no_done",
    "early_stop",
    "wrong_usage",
    "wrong_prompt",
    "bad_json",
    "garbage",
)
# Streams that break off after some text; the process lives.
BROKEN = ("clean_eof", "truncated", "reset", "broken_chunk", "stall", "error_event")
# Answers that are no stream, or have no text.
REFUSED = ("overflow_event", "wrong_type", "http_503")
# The process dies: after the end of a stream without usage, between two chunks, or inside one.
DEADLY = ("die_clean", "die", "die_in_chunk")
FAULTS = (*WRONG, *BROKEN, *REFUSED, *DEADLY)

ILLEGAL = "Scheduler hit an exception: CUDA error: an illegal instruction was encountered"


@dataclass
class Fault:
    """Applies to requests with min_output <= max_tokens <= max_output, at most `times` of them."""

    name: str
    min_output: int = 0
    max_output: int = 10**9
    times: int = 10**9
    after: int = 0  # matching requests that still go well
    at_token: int = 4
    seen: int = 0


@dataclass
class Death:
    """`how`: kill (by its own hand, as SGLang), slow (refuses connections first), exit_0, exit_1, segv."""

    how: str = "kill"
    words: list[str] = field(default_factory=lambda: [ILLEGAL])
    slow_s: float = 0.6


@dataclass
class Behaviour:
    context: int = 2048
    enforced_context: int | None = None  # where it differs from what the server says
    tokens_per_chunk: int = 1
    chunk_s: float = 0.0005
    first_s: float = 0.001
    empty_first: bool = False
    speculating: bool = False
    load_s: float = 0.0  # connection refused until then
    warm_s: float = 0.0  # then /health 503 until then
    busy_503: bool = False  # /health says 503 while a prompt is read
    crash_loading: bool = False
    keep_port_s: float = 0.0  # a process outside the unit holds the port for so long
    faults: list[Fault] = field(default_factory=list)
    death: Death = field(default_factory=Death)


def behaviour_from(raw: dict[str, Any]) -> Behaviour:
    return Behaviour(
        **{
            **raw,
            "faults": [Fault(**fault) for fault in raw.get("faults", [])],
            "death": Death(**raw.get("death", {})),
        }
    )


def log(text: str, rank: str = " TP0") -> None:
    sys.stderr.write(time.strftime(f"[%Y-%m-%d %H:%M:%S{rank}] ") + text + "\n")
    sys.stderr.flush()


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def load(load_s: float, shards: int = 5) -> None:
    """The lines of a start, spread over its time; the progress bar comes with carriage returns."""
    log("server_args={'model_path': '/dev/shm/sim', 'tp_size': 1}", "")
    log("Load weight begin. avail mem=94.20 GB")
    for done in range(shards + 1):
        percent = 100 * done // shards
        sys.stderr.write(
            f"\rLoading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{shards} "
        )
        sys.stderr.write(f"| {done}/{shards} [00:0{done}<00:0{shards - done},  1.00it/s]")
        sys.stderr.write("\n" if done == shards else "")
        sys.stderr.flush()
        time.sleep(load_s / (shards + 1))
    log("Load weight end. elapsed=5.00 s, type=SimForCausalLM, avail mem=40.10 GB, mem usage=54.10 GB.")
    log("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8192, K size: 1.00 GB, V size: 1.00 GB")


def prefill_line(tokens: int) -> None:
    log(
        f"Prefill batch, #new-seq: 1, #new-token: {tokens}, #cached-token: 0, token usage: 0.00, "
        f"#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, "
        f"input throughput (token/s): 1000.00"
    )


def decode_line(tokens: int, *, speculating: bool) -> None:
    accepted = "accept len: 3.00, accept rate: 0.13, " if speculating else ""
    log(
        f"Decode batch, #running-req: 1, #token: {tokens}, token usage: 0.01, {accepted}cuda graph: True, "
        f"gen throughput (token/s): 182.90, #queue-req: 0"
    )


def die(death: Death) -> None:
    for line in death.words:
        log(line)
    if death.how == "slow":
        say("Subprocess scheduler_0 (pid=4242) crashed with exit code 1. Triggering SIGQUIT for cleanup...")
        log("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.", "")
        time.sleep(death.slow_s)
    if death.how == "exit_0":
        os._exit(0)
    if death.how == "exit_1":
        os._exit(1)
    os.kill(os.getpid(), signal.SIGSEGV if death.how == "segv" else signal.SIGKILL)
    time.sleep(10)
