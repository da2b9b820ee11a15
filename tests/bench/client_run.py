"""One load against an exact server that runs already, in a process of its own; prints a line of JSON.

The process's own time and memory are taken when the last answer has been parsed, before anything is compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "roles/bench_run/files"
sys.path.insert(0, str(PACKAGE))

from bench_runner.loops import run_in_loop  # noqa: E402 - the package is found just above
from bench_runner.selftest.rig import Rig  # noqa: E402
from bench_runner.selftest.steps import Step, judge, make_load  # noqa: E402


def peak_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--started-ns", type=int, required=True, help="when this process was started")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--gap-us", type=int, default=10_000)
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--pattern", default="poisson")
    parser.add_argument("--arrivals", type=Path, help="write each answer's arrivals there, on the wall clock")
    options = parser.parse_args()
    rig = Rig(options.port)
    step = Step(
        streams=options.streams,
        requests=options.requests,
        gap_us=options.gap_us,
        chunks=options.chunks,
        tokens_per_chunk=options.tokens_per_chunk,
        rate=options.rate,
        pattern=options.pattern,
    )
    load = make_load(rig, step)
    outcomes = run_in_loop(load.run())
    cpu_s, memory_mb = time.process_time(), peak_mb()
    found = judge(rig, step, load, outcomes)
    streams = {outcome.index: outcome.stream for outcome in outcomes if outcome.stream}
    if options.arrivals:
        offset_ns = rig.receiver.clocks.offset_ns
        arrivals = {number: [at + offset_ns for at in s.chunks_ns] for number, s in streams.items()}
        options.arrivals.write_text(json.dumps(arrivals), encoding="utf-8")
    first_ns = min(stream.sent_ns for stream in streams.values())
    late = found.sending.late
    said = {
        "ttft_p50_ms": found.ttft_error_p50_ms,
        "ttft_p99_ms": found.ttft_error_p99_ms,
        "late_p99_ms": found.stamp_late_p99_ms,
        "together": found.together_share,
        "tpot_ms": options.gap_us / 1000 / options.tokens_per_chunk * (1 + found.tpot_error),
        "tps_error": found.tps_error,
        "chunks_per_s": found.chunks_per_s,
        "cpu_ms": cpu_s * 1000 / found.requests,
        "peak_mb": memory_mb,
        "start_s": (first_ns - options.started_ns) / 1e9,
        "faults": found.faults,
        "doubts": found.doubts,
        "wrongly_certified": found.wrongly_certified,
        "send_late_p99_ms": late.p99_ms if late else None,
        "seen_rps": found.seen_rps,
        "gap_cv": found.gap_cv,
        "server_late_p99_ms": found.server_late_p99_ms,
        "stamps": found.health.stamps,
    }
    print(json.dumps(said))  # noqa: T201 - for the process that started this
    rig.close()


if __name__ == "__main__":
    main()
