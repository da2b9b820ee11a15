"""Everything that goes wrong with a server, and what must be said of it: one table, a row a scenario.

Each runs as a campaign of `code` cells of 20 and of 40 tokens (two requests each) on one configuration. The
canary asks for 32 tokens, a warm-up for 16: a fault says by a request's length which of them it meets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MEASURED = {"min_output": 40, "max_output": 40}
WARM_UP = {"min_output": 16, "max_output": 16}
CANARY = {"min_output": 32, "max_output": 32}
GPU_MIB = 54100


@dataclass(frozen=True)
class Scenario:
    """`cells` are the statuses in order; `codes`, `says` and `signature` are of the first that isn't ok."""

    cells: tuple[str, ...]
    codes: tuple[str, ...] = ()
    signature: str | None = None
    says: str = ""  # a pattern in the first reason's sentence
    behaviour: dict[str, Any] = field(default_factory=dict)
    unit: dict[str, Any] = field(default_factory=dict)  # tests.sim.control.Ways
    plan: dict[str, Any] = field(default_factory=dict)
    next: tuple[str, str] | None = None  # the statuses of a good configuration after it
    next_says: str = ""
    why: str = ""
    long: bool = False  # of the long tier: a neighbour in the table takes the same way


def fault(name: str, where: dict[str, int] = MEASURED, **more: Any) -> dict[str, Any]:
    return {"faults": [{"name": name, **where, **more}]}


def dies(how: str = "kill", words: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    death: dict[str, Any] = {"how": how}
    if words is not None:
        death["words"] = words
    return {**fault("die", **changes), "death": death}


GOOD = ("ok", "ok")
DIED = ("ok", "crashed")
AT_ONCE = ("crashed", "skipped")
UNFIT = ("failed", "skipped")
BAD = ("ok", "failed")
ODD = ("ok", "partial")

SCENARIOS: dict[str, Scenario] = {
    # Nothing is wrong, though it may look so.
    "good": Scenario(GOOD, behaviour={"speculating": True}),
    "several tokens a chunk": Scenario(GOOD, behaviour={"tokens_per_chunk": 7}),
    "empty first delta": Scenario(GOOD, behaviour={"empty_first": True}),
    "slow but alive": Scenario(GOOD, behaviour={"chunk_s": 0.01}, why="it is above the floor speed"),
    "false 503 in a long prefill": Scenario(
        GOOD, behaviour={"first_s": 0.1, "busy_503": True}, why="its health is not asked while it is measured"
    ),
    # Answers that are wrong from a server that lives, and that answers the canary rightly afterwards.
    "zero tokens": Scenario(BAD, ("zero_tokens",), behaviour=fault("zero_tokens")),
    "200 with an error event": Scenario(
        BAD, ("error_event",), says="illegal instruction", behaviour=fault("error_event")
    ),
    "200 with an overflow event": Scenario(
        BAD, ("context_overflow",), behaviour=fault("overflow_event"), long=True
    ),
    "400 overflow": Scenario(
        BAD,
        ("context_overflow",),
        says="maximum context length of 85 tokens",
        behaviour={"enforced_context": 85},
        why="the server says 2048 and takes 85: prompt 48 + output 40 does not fit",
    ),
    "no usage chunk": Scenario(BAD, ("no_usage",), behaviour=fault("no_usage")),
    "no end mark": Scenario(BAD, ("no_done",), behaviour=fault("no_done"), long=True),
    "clean end of a stream without usage": Scenario(BAD, ("no_done",), behaviour=fault("clean_eof")),
    "broken inside a chunk": Scenario(BAD, ("truncated",), behaviour=fault("truncated")),
    "reset": Scenario(BAD, ("reset",), behaviour=fault("reset"), long=True),
    "a chunk that is no chunk": Scenario(BAD, ("broken_http",), behaviour=fault("broken_chunk"), long=True),
    "bad JSON in an event": Scenario(BAD, ("bad_json",), behaviour=fault("bad_json"), long=True),
    "JSON instead of a stream": Scenario(
        BAD, ("wrong_content_type",), behaviour=fault("wrong_type"), long=True
    ),
    "503 for one length": Scenario(BAD, ("http_503",), behaviour=fault("http_503"), long=True),
    "early stop": Scenario(ODD, ("early_stop",), says="10 of 40 tokens", behaviour=fault("early_stop")),
    "wrong usage": Scenario(ODD, ("usage_below_chunks",), behaviour=fault("wrong_usage")),
    "another prompt than planned": Scenario(
        ODD, ("prompt_length_differs",), behaviour=fault("wrong_prompt"), long=True
    ),
    "garbage tokens": Scenario(ODD, ("garbage_text",), says="!!!!", behaviour=fault("garbage")),
    "one of two is bad": Scenario(
        ODD, ("zero_tokens",), says="1 of 2 requests", behaviour=fault("zero_tokens", times=1), long=True
    ),
    "one stall": Scenario(ODD, ("stalled",), behaviour=fault("stall", times=1), long=True),
    # The process lives and its health says 200, but nothing comes any more.
    "hang with static health": Scenario(
        UNFIT,
        ("server_degraded",),
        "degraded",
        says="its health says 200, but it can't generate 32 tokens: stalled, no byte for 0.6 s",
        behaviour=fault("stall", {}),
    ),
    "hang later": Scenario(
        ("ok", "failed", "skipped"),
        ("server_degraded", "stalled"),
        "degraded",
        says="its health says 200",
        behaviour={"faults": [{"name": "stall", "min_output": 40}, {"name": "stall", **CANARY, "after": 1}]},
        plan={"workloads": {"code": {"points": [20, 40, 50], "requests": 2}}},
        why="the third cell is skipped for it",
    ),
    "hang in the warm-up": Scenario(
        ("failed", "skipped"),
        ("server_degraded", "warm_up_stalled"),
        "degraded",
        behaviour={"faults": [{"name": "stall", **WARM_UP}, {"name": "stall", **CANARY, "after": 1}]},
        long=True,
    ),
    "zero tokens for all": Scenario(
        UNFIT, ("server_degraded",), "degraded", says="zero_tokens", behaviour=fault("zero_tokens", {})
    ),
    "503 for all": Scenario(
        UNFIT, ("server_degraded",), "degraded", says="http_503", behaviour=fault("http_503", {}), long=True
    ),
    "dead scheduler under a parent that lives on": Scenario(
        BAD,
        ("server_degraded", "no_done", "refused"),
        "cuda_illegal_instruction",
        says="its process lives .* but it can't generate 32 tokens: refused",
        behaviour={**fault("die_clean"), "death": {"how": "slow", "slow_s": 60}},
    ),
    # It answers the canary, but not rightly.
    "garbage at once": Scenario(UNFIT, ("canary_garbage_text",), behaviour=fault("garbage", {})),
    "early stop at once": Scenario(
        UNFIT, ("canary_early_stop",), behaviour=fault("early_stop", {}), long=True
    ),
    "below the floor speed": Scenario(
        UNFIT,
        ("canary_too_slow",),
        says="the floor is 100 tokens/s",
        behaviour={"chunk_s": 0.02},
        plan={"canary": {"floor_tps": 100}},
    ),
    "never ready": Scenario(
        UNFIT,
        ("server_not_ready",),
        says=r"it listened, but was not ready; its last log lines: .*Load weight end.*Uvicorn running",
        behaviour={"warm_s": 60},
        plan={"limits": {"server_ready_s": 0.8, "cell_s": 15, "stall_s": 0.6}},
    ),
    # It dies.
    "crash at token 4, clean end": Scenario(
        DIED,
        ("server_crashed", "no_done", "not_sent"),
        "cuda_illegal_instruction",
        behaviour=fault("die_clean"),
    ),
    "crash at token 12, inside a chunk": Scenario(
        DIED,
        ("server_crashed", "truncated", "not_sent"),
        "cuda_illegal_instruction",
        behaviour=fault("die_in_chunk", at_token=12),
    ),
    "crash in the canary (b8)": Scenario(
        AT_ONCE, ("canary_truncated",), "cuda_illegal_instruction", behaviour=fault("die", CANARY), long=True
    ),
    "crash in the warm-up": Scenario(
        AT_ONCE,
        ("server_crashed",),
        "cuda_illegal_instruction",
        says="before the first request: warm-up",
        behaviour=fault("die", WARM_UP),
    ),
    "warm-up fine, then death (b12)": Scenario(
        DIED,
        ("server_crashed", "truncated", "not_sent"),
        "cuda_illegal_instruction",
        behaviour=fault("die"),
        next=GOOD,
    ),
    "refused after the death": Scenario(
        DIED,
        ("server_crashed", "no_done", "not_sent"),
        "cuda_illegal_instruction",
        behaviour={**fault("die_clean"), "death": {"how": "slow"}},
        why="SGLang's parent outlives its scheduler by seconds and answers nobody",
    ),
    "exit code 0 on a crash": Scenario(
        DIED,
        ("server_crashed", "truncated", "not_sent"),
        "cuda_illegal_instruction",
        says="result success",
        behaviour=dies("exit_0"),
    ),
    "exit code 0 and no word": Scenario(
        DIED,
        ("server_crashed", "truncated", "not_sent"),
        "exited_with_status_0",
        behaviour=dies("exit_0", []),
    ),
    "killed by a person": Scenario(
        DIED,
        ("server_crashed", "truncated", "not_sent"),
        "killed_by_someone",
        says="signal 9 .*and not by the OOM killer",
        behaviour=dies("kill", []),
    ),
    "killed, and the kernel's log is hidden": Scenario(
        DIED,
        ("server_crashed", "truncated", "not_sent"),
        "killed_by_someone",
        says="it may have been the OOM killer",
        behaviour=dies("kill", []),
        unit={"notes": ["dmesg: read kernel buffer failed: Operation not permitted"]},
        long=True,
    ),
    "OOM exit": Scenario(
        DIED,
        ("server_crashed", "truncated", "not_sent"),
        "oom_kill_cgroup",
        says=r"the kernel killed python3 \(pid 4242, 61234567 kB\)",
        behaviour=dies("kill", []),
        unit={
            "result": "oom-kill",
            "kernel": [
                "[ 7.1] Memory cgroup out of memory: Killed process 4242 (python3) anon-rss:61234567kB"
            ],
        },
    ),
    "segmentation fault": Scenario(
        DIED,
        ("server_crashed", "truncated", "not_sent"),
        "segmentation_fault",
        behaviour=dies("segv", []),
        long=True,
    ),
    "restart in between": Scenario(
        DIED,
        ("server_crashed", "truncated", "not_sent"),
        "restarted",
        says=r"another process took its place .*NRestarts 0 -> 1",
        behaviour=dies("kill"),
        unit={"restart": True},
    ),
    "crash while it loads": Scenario(
        AT_ONCE,
        ("server_crashed_loading",),
        "cuda_out_of_memory",
        says=r"asked for 20.00 GiB",
        behaviour={"crash_loading": True},
        next=GOOD,
    ),
    # It leaves something behind, and the next one does not start on it.
    "GPU memory not freed": Scenario(
        GOOD,
        unit={"gpu_mib": GPU_MIB, "gpu_kept_by": (4242, "sglang::scheduler")},
        next=UNFIT,
        next_says=r"gpu_memory_held: .*GPU 0 uses 54104 MiB .* held by pid 4242 \(sglang::scheduler, 54100",
    ),
    "GPU memory freed": Scenario(GOOD, unit={"gpu_mib": GPU_MIB}, next=GOOD, long=True),
    "port kept": Scenario(
        GOOD,
        behaviour={"keep_port_s": 6},
        next=UNFIT,
        next_says=r"port_kept: port \d+ is still answered .* by a process outside it",
    ),
}
