"""Measure diagnosis and repair, in the lab: `./run lab python tests/bench/bench_recover.py`.

Each run starts without an open ssh connection, as an operator's does after a reboot; a wrapper counts the
executions of ssh. The ways take turns, so that a busy machine is unfair to none of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.lab import paths  # noqa: E402 (found by the path set above)

FAULT = "uvm-rule-missing"
HEALTHY = re.compile(r"^\s+ct200\s+healthy: ")
WRAPPER = '#!/bin/sh\necho x >> "$0.calls"\nexec ssh "$@"\n'


@dataclass(frozen=True)
class Way:
    """A playbook run that is measured; `broken`: after the story's fault was made."""

    name: str
    playbook: str
    arguments: tuple[str, ...] = ()
    broken: bool = False


@dataclass(frozen=True)
class Sample:
    """`healthy_s` ends when the node is seen healthy; without the container's own boot time, as `whole_s`."""

    healthy_s: float
    whole_s: float
    boot_s: float
    round_trips: int


WAYS = (
    Way("repair by hot-plug", "recover.yml", broken=True),
    Way("repair by a restart", "recover.yml", ("-e", "pve_lxc_hot_plug_enabled=false"), broken=True),
    Way("`recover.yml`, nothing to do", "recover.yml"),
    Way("`diagnose.yml`, nothing to do", "diagnose.yml"),
)


def lab(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.lab", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )


def measure(way: Way) -> Sample:
    """One run, in a scratch folder of its own."""
    if way.broken:
        lab("break", FAULT)
    with tempfile.TemporaryDirectory(prefix="bench-recover-") as folder:
        return run(way, Path(folder))


def run(way: Way, folder: Path) -> Sample:
    wrapper, record = folder / "ssh", folder / "recovery.json"
    wrapper.write_text(WRAPPER, encoding="utf-8")
    wrapper.chmod(0o755)
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        *("-i", "inventory/lab"),
        f"playbooks/{way.playbook}",
        *("-e", f"results_dir={folder}/results"),
        *("-e", f"ansible_ssh_executable={wrapper}"),
        *way.arguments,
    ]
    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "RECOVERY_REPORT": str(record),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "cp"),
    }
    started = time.monotonic()
    healthy = 0.0
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        lines = []
        for line in process.stdout or ():
            lines.append(line)
            if HEALTHY.match(line) and not healthy:
                healthy = time.monotonic()
    ended = time.monotonic()
    if process.returncode != 0 or not healthy:
        sys.exit(f"{way.name}: ended with {process.returncode}\n{''.join(lines)}")
    stages = json.loads(record.read_text(encoding="utf-8"))["stages"]
    boot = sum(stage["waited_s"].get("boot", 0.0) for stage in stages)
    calls = len((folder / "ssh.calls").read_text(encoding="utf-8").splitlines())
    return Sample(healthy - started - boot, ended - started - boot, boot, calls)


def table(samples: dict[str, list[Sample]]) -> str:
    lines = [
        "| run | s to healthy | s in all | s of the container's boot, not counted | round trips |",
        "|---|---|---|---|---|",
    ]
    for name, found in samples.items():
        healthy, whole, boot = (
            statistics.median(getattr(sample, field) for sample in found)
            for field in ("healthy_s", "whole_s", "boot_s")
        )
        trips = sorted({sample.round_trips for sample in found})
        counted = f"{trips[0]}" if len(trips) == 1 else f"{trips[0]} to {trips[-1]}"
        lines.append(f"| {name} | {healthy:.1f} | {whole:.1f} | {boot:.1f} | {counted} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    if not paths.ROOM_MARK.exists():
        sys.exit("run this in the lab: ./run lab python tests/bench/bench_recover.py")
    lab("up", "--fresh")
    measure(Way("warm-up", "recover.yml"))
    load = os.getloadavg()[0]
    samples: dict[str, list[Sample]] = {way.name: [] for way in WAYS}
    for _ in range(args.repeats):
        for way in WAYS:
            samples[way.name].append(measure(way))
    sys.stdout.write(f"{table(samples)}\n\nload average: {load:.1f} before, {os.getloadavg()[0]:.1f} after\n")


if __name__ == "__main__":
    main()
