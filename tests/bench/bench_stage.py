"""Measure staging side by side with what an operator would type: `python tests/bench/bench_stage.py --gb 4`.

Makes a cache of random safetensors on a disk, brings it into tmpfs in each way in turns, and prints a table
of medians, and each goal with whether it was met. A ratio is the median of the ratios of each turn. Before a
cold run the pages of the source's own files are dropped, nobody else's; a server on the loopback serves from
the page cache, so that the network's way is measured and not the disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stage_data import drop, make_cache, warm
from stage_ways import HttpWays, LocalWays, Sample, installed, read_only, servers

if TYPE_CHECKING:
    from collections.abc import Callable

    Ways = dict[str, Callable[[], Sample]]
    Rows = dict[str, list[Sample]]

RAW, CP, CP_SUM, RCLONE = "raw read, the limit", "`cp -rL`", "`cp -rL` then `sha256sum -c`", "`rclone copy`"
HF, CURL, ARIA = "`hf download`", "`curl`, 4 ranges", "`aria2c -x4 -j4`"
HTTP, HUB = "model_stager, HTTP", "model_stager, the hub"
SUM, DEEP, QUICK = "`sha256sum -c`", "model_stager, --deep", "model_stager, quick proof"
UNVERIFIED = (RAW, CP, RCLONE, HF, CURL, ARIA)
PROOF_FILES = 20
LARGE_GB = 8
QUICK_S = 0.005
MOST_MB = 64


def ours(workers: int) -> str:
    return f"model_stager, {workers} worker{'' if workers == 1 else 's'}"


def in_turns(ways: Ways, repeats: int, before: Callable[[], None]) -> Rows:
    """So that a noisy minute hits all alike."""
    rows: Rows = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            before()
            rows[name].append(way())
    return rows


def empty(target: Path) -> None:
    for path in target.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def local(args: argparse.Namespace, hub: Path, snapshot: Path, target: Path) -> Rows:
    ways = LocalWays(hub, snapshot, target)
    copies: Ways = {RAW: lambda: read_only(snapshot), CP: ways.cp, CP_SUM: ways.cp_then_sha256sum}
    if installed("rclone"):
        copies[RCLONE] = ways.rclone
    for workers in (1, 2, 4):
        copies[ours(workers)] = lambda workers=workers: ways.stage(workers)

    def before() -> None:
        empty(target)
        (warm if args.warm else drop)(snapshot)

    return in_turns(copies, args.repeats, before)


def http(args: argparse.Namespace, snapshot: Path, target: Path, work: Path) -> Rows:
    with servers(snapshot, work) as (place, hub):
        ways = HttpWays(snapshot, target, place, hub)
        copies: Ways = {HF: ways.hf_download, CURL: ways.curl}
        if installed("aria2c"):
            copies[ARIA] = ways.aria2c
        copies[HTTP] = lambda: ways.stage(4)
        copies[HUB] = lambda: ways.stage_from_hub(4)

        def before() -> None:
            empty(target)
            warm(snapshot)

        try:
            return in_turns(copies, args.repeats, before)
        finally:
            ways.close()


def proofs(args: argparse.Namespace, hub: Path, snapshot: Path, target: Path) -> Rows:
    ways = LocalWays(hub, snapshot, target)
    empty(target)
    ways.stage(2)
    return in_turns({SUM: ways.sha256sum, DEEP: ways.deep, QUICK: ways.quick}, args.repeats, lambda: None)


def middle(samples: list[Sample]) -> float:
    return statistics.median(sample.seconds for sample in samples)


def ratio(rows: Rows, peer: str, name: str) -> float | None:
    """How many times faster than the peer, turn by turn."""
    if peer not in rows or name not in rows:
        return None
    turns = zip(rows[peer], rows[name])
    return statistics.median(their.seconds / our.seconds for their, our in turns)


def table(rows: Rows, gigabytes: float, base: str) -> str:
    lines = [
        f"| way | verified | s (median) | least to most s | GB/s | x {base} | CPU-s/GB | RSS MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, samples in rows.items():
        seconds = [sample.seconds for sample in samples]
        times = ratio(rows, base, name)
        cpu = statistics.median(sample.cpu_s for sample in samples) / gigabytes
        rss = max(sample.rss_mb for sample in samples)
        if name == QUICK:
            spread = f"{middle(samples):.4f} | {min(seconds):.4f} to {max(seconds):.4f}"
            lines.append(f"| {name} | by its record | {spread} | | {times:.0f} | | |")
            continue
        verified = "no" if name in UNVERIFIED else "yes"
        spread = f"{middle(samples):.2f} | {min(seconds):.2f} to {max(seconds):.2f}"
        speed = f"{gigabytes / middle(samples):.2f} | {times:.2f} | {cpu:.2f}"
        lines.append(f"| {name} | {verified} | {spread} | {speed} | {f'{rss:.0f}' if rss else ''} |")
    return "\n".join(lines)


def goals(rows: Rows, gigabytes: float, *, cold: bool) -> str:
    """The issue's table; a goal whose peer was not measured is left out."""
    lines = ["| goal | wanted | measured | met |", "|---|---|---|---|"]

    def add(what: str, wanted: str, value: float | None, *, least: float, shown: str = "{:.2f} x") -> None:
        if value is not None:
            lines.append(
                f"| {what} | {wanted} | {shown.format(value)} | {'yes' if value >= least else '**no**'} |"
            )

    two = ours(2)
    if cold:
        least = 3.0 if gigabytes >= LARGE_GB else 1.5
        add("against `cp` then `sha256sum`", "≥ 7 x", ratio(rows, CP_SUM, two), least=7)
        add(f"against `cp`, {gigabytes:g} GB", f"≥ {least:g} x", ratio(rows, CP, two), least=least)
        share = ratio(rows, RAW, two)
        percent = None if share is None else share * 100
        add("share of the raw read", "≥ 70 %", percent, least=70, shown="{:.0f} %")
        add("against `rclone copy`", "faster", ratio(rows, RCLONE, two), least=1.0)
    add("HTTP against `hf download`", "≥ 4.5 x", ratio(rows, HF, HTTP), least=4.5)
    add("HTTP against `curl`, 4 ranges", "≥ 1.1 x", ratio(rows, CURL, HTTP), least=1.1)
    add(
        "quick proof against `sha256sum -c`",
        "≥ 1000 x",
        ratio(rows, SUM, QUICK),
        least=1000,
        shown="{:.0f} x",
    )
    if QUICK in rows:
        spent = middle(rows[QUICK])
        met = "yes" if spent < QUICK_S else "**no**"
        lines.append(f"| quick proof of {PROOF_FILES} files | under 5 ms | {spent * 1e3:.1f} ms | {met} |")
    staged = [samples for name, samples in rows.items() if name.startswith("model_stager")]
    most = max((sample.rss_mb for samples in staged for sample in samples), default=0.0)
    lines.append(
        f"| memory of the stager | under 64 MB | {most:.0f} MB | {'yes' if most < MOST_MB else '**no**'} |"
    )
    return "\n".join(lines)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gb", type=float, default=4.0)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warm", action="store_true", help="leave the source in the page cache")
    parser.add_argument("--only", choices=("local", "http", "proof"), help="one part; default: all")
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="where the cache is made")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="where it is staged")
    return parser.parse_args(argv)


def main() -> None:
    args = parse()
    name = f"bench-stage-{os.getpid()}"
    disk, target = args.disk / name, args.memory / name
    rows: Rows = {}
    try:
        for folder in (disk, target):
            folder.mkdir()
        if args.only != "proof":
            snapshot = make_cache(disk / "hub", gigabytes=args.gb, files=args.files)
        if args.only in (None, "local"):
            part = local(args, disk / "hub", snapshot, target)
            say(f"From a disk, {'warm' if args.warm else 'cold'}, {args.gb:g} GB in {args.files} files",
                table(part, args.gb, CP))  # fmt: skip
            rows |= part
        if args.only in (None, "http"):
            part = http(args, snapshot, target, disk / "nginx")
            say(f"From HTTP on the loopback, {args.gb:g} GB in {args.files} files", table(part, args.gb, HF))
            rows |= part
        if args.only in (None, "proof"):
            shutil.rmtree(disk / "hub", ignore_errors=True)
            snapshot = make_cache(disk / "hub", gigabytes=args.gb, files=PROOF_FILES)
            part = proofs(args, disk / "hub", snapshot, target)
            say(f"Proof of {args.gb:g} GB in {PROOF_FILES} files in memory", table(part, args.gb, SUM))
            rows |= part
        say("Goals", goals(rows, args.gb, cold=not args.warm))
    finally:
        shutil.rmtree(disk, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)


def say(title: str, text: str) -> None:
    sys.stdout.write(f"{title}\n\n{text}\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
