"""Measure the load generator against a server with known times: `python tests/bench/bench_client.py`.

Server on the first processor, client on the second, both before other work where that is allowed; medians of
several runs in turns. `--capture` compares the stamps with a packet capture instead (needs dumpcap, root).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "roles/bench_run/files"
SERVER_CPU, CLIENT_CPU = 0, 1
REALTIME = 10

LOADS: dict[str, list[str]] = {
    **{
        f"{n} streams, 10 ms": ["--streams", str(n), "--requests", str(n * (3 if n < 256 else 2))]
        for n in (1, 16, 64, 128, 256, 512)
    },
    "128 streams, 5 ms": ["--streams", "128", "--gap-us", "5000"],
    "128 streams, 2 ms": ["--streams", "128", "--gap-us", "2000"],
    "128 streams, 10 ms, 4 tokens a chunk": ["--streams", "128", "--tokens-per-chunk", "4"],
    "200/s constant": ["--rate", "200", "--requests", "600", "--pattern", "constant"],
    "200/s Poisson": ["--rate", "200", "--requests", "600"],
}
COLUMNS = (
    "load",
    "chunks/s",
    "TTFT error p50 / p99 ms",
    "stamps late p99 ms",
    "in shared reads",
    "TPOT ms",
    "tokens/s error",
    "CPU ms/request",
    "peak MB",
    "start s",
    "sent/s",
    "gap CV",
    "send late p99 ms",
    "doubted",
)


@contextmanager
def exact_server(*, realtime: bool, arguments: list[str] | None = None) -> Iterator[int]:
    """Its port. It ends with its input."""
    command = [sys.executable, "-m", "bench_runner.selftest.server", *(arguments or [])]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        preexec_fn=lambda: before_others(SERVER_CPU, realtime=realtime),  # noqa: PLW1509 - one thread here
    )
    if process.stdin is None or process.stdout is None:
        raise SystemExit("no pipes")
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def before_others(cpu: int, *, realtime: bool) -> None:
    """On that processor, and not kept from it by others; the second needs rights."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {cpu})
        if realtime:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REALTIME))


def client(port: int, arguments: list[str], *, realtime: bool) -> dict[str, Any]:
    """One run of ours."""
    started = str(time.monotonic_ns())
    done = subprocess.run(
        [
            sys.executable,
            str(HERE / "client_run.py"),
            "--port",
            str(port),
            "--started-ns",
            started,
            *arguments,
        ],
        stdout=subprocess.PIPE,
        check=True,
        preexec_fn=lambda: before_others(CLIENT_CPU, realtime=realtime),
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def middle(runs: list[dict[str, Any]], key: str) -> float | None:
    values = [run[key] for run in runs if run[key] is not None]
    return statistics.median(values) if values else None


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for what, runs in rows.items():
        m = {
            key: middle(runs, key) for key in runs[0] if key not in {"doubts", "wrongly_certified", "stamps"}
        }
        doubted = sorted({metric for run in runs for metric in run["doubts"]})
        cells = [
            what,
            shown(m["chunks_per_s"], 0),
            f"{shown(m['ttft_p50_ms'], 3)} / {shown(m['ttft_p99_ms'], 3)}",
            shown(m["late_p99_ms"], 3),
            f"{m['together'] or 0:.2%}",
            shown(m["tpot_ms"], 4),
            f"{m['tps_error'] or 0:+.3%}",
            shown(m["cpu_ms"], 2),
            shown(m["peak_mb"], 0),
            shown(m["start_s"], 2),
            shown(m["seen_rps"], 2),
            shown(m["gap_cv"], 2),
            shown(m["send_late_p99_ms"], 2),
            ", ".join(doubted),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def capture(*, streams: int, realtime: bool) -> str:
    """The same arrivals by the client's stamps and by a capture on the loopback."""
    with tempfile.TemporaryDirectory() as folder, exact_server(realtime=realtime) as port:
        packets, arrivals = Path(folder) / "packets.pcapng", Path(folder) / "arrivals.json"
        dumpcap = subprocess.Popen(
            ["dumpcap", "-q", "-i", "lo", "-B", "64", "-f", f"tcp src port {port}", "-w", str(packets)],
            stderr=subprocess.PIPE,
        )
        time.sleep(1.0)  # until it captures
        client(port, ["--streams", str(streams), "--arrivals", str(arrivals)], realtime=realtime)
        time.sleep(0.5)
        dumpcap.terminate()
        dumpcap.communicate(timeout=20)
        stamps = {int(number): times for number, times in json.loads(arrivals.read_text()).items()}
        captured = packet_times(packets)
    apart = sorted(
        abs(ours - theirs) / 1e6
        for number, times in stamps.items()
        for ours, theirs in zip(times, captured[number], strict=True)
    )
    at = {percent: apart[min(int(len(apart) * percent / 100), len(apart) - 1)] for percent in (50, 99)}
    return (
        f"{streams} streams, {len(apart)} chunks: stamps and capture differ by {at[50]:.4f} ms (p50), "
        f"{at[99]:.4f} ms (p99), {apart[-1]:.4f} ms at most"
    )


def packet_times(packets: Path) -> dict[int, list[int]]:
    """By request, when each of its chunks with text crossed the loopback."""
    done = subprocess.run(
        # A busy loopback sends a segment again when its acknowledgement takes long; the first one counts.
        [
            "tshark",
            "-r",
            str(packets),
            "-Y",
            "tcp.len > 0 && !tcp.analysis.retransmission",
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
            "-e",
            "tcp.payload",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[int, list[int]] = {}
    for line in done.stdout.splitlines():
        epoch, _, payload = line.partition("\t")
        seconds, _, fraction = epoch.partition(".")
        at_ns = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0"))
        for event in bytes.fromhex(payload).split(b"data: ")[1:]:
            if b'"text":" the' in event:
                found.setdefault(int(event.partition(b"cmpl-")[2][:32]), []).append(at_ns)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="loads whose names have one of these words")
    parser.add_argument("--capture", action="store_true")
    parser.add_argument("--streams", type=int, default=16, help="of the capture")
    parser.add_argument("--json", type=Path, help="keep each run")
    parser.add_argument("--shared", action="store_true", help="leave the scheduler's priorities as they are")
    options = parser.parse_args()
    realtime = not options.shared
    if options.capture:
        sys.stdout.write(capture(streams=options.streams, realtime=realtime) + "\n")
        return
    loads = {
        what: arguments
        for what, arguments in LOADS.items()
        if not options.only or any(word in what for word in options.only)
    }
    rows: dict[str, list[dict[str, Any]]] = {}
    before = os.getloadavg()[0]
    with exact_server(realtime=realtime) as port:
        for _ in range(options.repeats):  # in turns, so that a noisy minute hits all alike
            for what, arguments in loads.items():
                rows.setdefault(what, []).append(client(port, arguments, realtime=realtime))
    sys.stdout.write(f"{table(rows)}\n\nLoad average {before:.1f} before, {os.getloadavg()[0]:.1f} after.\n")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
