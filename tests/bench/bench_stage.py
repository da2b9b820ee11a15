"""Measure staging side by side with what an operator would type: `python tests/bench/bench_stage.py --gb 2`.

Makes a cache of random safetensors on a disk, copies it into tmpfs in each way, prints a table of medians.
Before each cold run the pages of the source's own files are dropped, nobody else's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "be9c" + "0" * 36
MB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """One run of one way."""

    seconds: float
    cpu_s: float
    rss_mb: float


def make_cache(hub: Path, *, gigabytes: float, files: int) -> Path:
    """A cache in huggingface_hub's layout; returns its snapshot."""
    repo = hub / "models--bench--random"
    snapshot = repo / "snapshots" / COMMIT
    for folder in (repo / "blobs", repo / "refs", snapshot):
        folder.mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    size = int(gigabytes * 1e9 / files) // MB * MB
    for number in range(files):
        name = f"model-{number + 1:05d}-of-{files:05d}.safetensors"
        header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        scratch, digest = repo / "blobs" / "new", hashlib.sha256()
        with scratch.open("wb") as stream:
            for block in (len(header).to_bytes(8, "little") + header, *_random_blocks(size)):
                stream.write(block)
                digest.update(block)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.rename(repo / "blobs" / digest.hexdigest())
        (snapshot / name).symlink_to(f"../../blobs/{digest.hexdigest()}")
    config = b"{}"
    blob = hashlib.sha1(b"blob %d\0" % len(config) + config, usedforsecurity=False).hexdigest()
    (repo / "blobs" / blob).write_bytes(config)
    (snapshot / "config.json").symlink_to(f"../../blobs/{blob}")
    return snapshot


def _random_blocks(size: int) -> list[bytes]:
    one = os.urandom(16 * MB)  # repeated: what is copied and hashed does not depend on it
    return [one] * (size // len(one)) + [one[: size % len(one)]]


def drop(folder: Path) -> None:
    """Take the files below the folder out of the page cache."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def warm(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as stream:
            while stream.read(16 * MB):
                pass


def run(command: list[str]) -> Sample:
    """Time a command; the memory is the largest that the kernel has seen of the process itself."""
    started = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "roles/model_stage/files")}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    rss_mb = 0.0
    while True:
        rss_mb = max(rss_mb, _peak_mb(process.pid))
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            process.returncode = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.005)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} ended with {process.returncode}")
    return Sample(seconds, usage.ru_utime + usage.ru_stime, rss_mb)


def _peak_mb(pid: int) -> float:
    """Not from rusage, which starts with the memory of the process that forked."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def read_only(snapshot: Path) -> Sample:
    """The limit: the same files read by two threads into nothing."""
    waiting = sorted(snapshot.iterdir())
    lock, started, cpu = threading.Lock(), time.perf_counter(), time.process_time()

    def work() -> None:
        buffer = bytearray(MB)
        while True:
            with lock:
                if not waiting:
                    return
                path = waiting.pop()
            with path.open("rb", buffering=0) as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
                while stream.readinto(buffer):
                    pass

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Sample(time.perf_counter() - started, time.process_time() - cpu, 0)


class Ways:
    """Each way to bring the snapshot into memory, and two to prove it."""

    def __init__(self, hub: Path, snapshot: Path, target: Path) -> None:
        self._hub = hub
        self._snapshot = snapshot
        self._target = target
        sums = target.parent / f"{target.name}.sha256"
        lines = [f"{path.resolve().name}  {path.name}\n" for path in snapshot.glob("*.safetensors")]
        sums.write_text("".join(lines), encoding="utf-8")
        self._sums = str(sums)

    def cp(self) -> Sample:
        return run(["cp", "-rL", str(self._snapshot), str(self._target / "copy")])

    def cp_then_sha256sum(self) -> Sample:
        copy = f"{self._target}/copy"
        return run(["sh", "-c", f"cp -rL {self._snapshot} {copy} && cd {copy} && sha256sum -c {self._sums}"])

    def stager(self, threads: int) -> Sample:
        return run([*self._stager("stage"), "--threads", str(threads)])

    def sha256sum(self) -> Sample:
        return run(["sh", "-c", f"cd {self._target}/random && sha256sum -c {self._sums}"])

    def deep(self) -> Sample:
        return run([*self._stager("stage"), "--deep"])

    def quick(self) -> Sample:
        """The proof itself, as the stager measures it; the start of Python is 0.1 s more."""
        done = subprocess.run(self._stager("check"), env=self._env(), capture_output=True, check=True)
        return Sample(json.loads(done.stdout)["seconds"], 0, 0)

    def _env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT / "roles/model_stage/files")}

    def _stager(self, verb: str) -> list[str]:
        wanted = ["--name", "random", "--repo", "bench/random", "--root", str(self._target)]
        return [sys.executable, "-m", "model_stager", verb, *wanted, "--source", f"hf_cache={self._hub}"]


def measure(args: argparse.Namespace, hub: Path, target: Path) -> list[tuple[str, list[Sample]]]:
    snapshot = make_cache(hub, gigabytes=args.gb, files=args.files)
    ways = Ways(hub, snapshot, target)
    copies: dict[str, Callable[[], Sample]] = {
        "raw read, the limit": lambda: read_only(snapshot),
        "`cp -rL`, not verified": ways.cp,
        "`cp -rL` then `sha256sum -c`": ways.cp_then_sha256sum,
        "model_stager, 1 worker": lambda: ways.stager(1),
        "model_stager, 2 workers": lambda: ways.stager(2),
        "model_stager, 4 workers": lambda: ways.stager(4),
    }
    rows: dict[str, list[Sample]] = {}
    for _ in range(args.repeats):  # in turns, so that a noisy minute hits all alike
        for name, way in copies.items():
            for path in target.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            (warm if args.warm else drop)(snapshot)
            rows.setdefault(name, []).append(way())
    proofs = {"proof: `sha256sum -c`": ways.sha256sum, "proof: --deep": ways.deep, "proof: quick": ways.quick}
    for name, way in proofs.items():
        rows[name] = [way() for _ in range(args.repeats)]
    return list(rows.items())


def table(rows: list[tuple[str, list[Sample]]], gigabytes: float) -> str:
    """Markdown, with every way against `cp`."""
    middle = {name: statistics.median(sample.seconds for sample in samples) for name, samples in rows}
    cp = middle["`cp -rL`, not verified"]
    lines = ["| way | s (median) | GB/s | times `cp` | CPU-s/GB | RSS MB |", "|---|---|---|---|---|---|"]
    for name, samples in rows:
        seconds = middle[name]
        cpu = statistics.median(sample.cpu_s for sample in samples) / gigabytes
        rss = max(sample.rss_mb for sample in samples)
        if name == "proof: quick":
            lines.append(f"| {name} | {seconds:.4f} | | | | |")
            continue
        speed = f"{gigabytes / seconds:.2f} | {cp / seconds:.2f}"
        lines.append(f"| {name} | {seconds:.2f} | {speed} | {cpu:.2f} | {rss:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warm", action="store_true", help="leave the source in the page cache")
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="where the cache is made")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="where it is staged")
    args = parser.parse_args()
    hub, target = args.disk / f"bench-stage-{os.getpid()}", args.memory / f"bench-stage-{os.getpid()}"
    try:
        hub.mkdir()
        target.mkdir()
        rows = measure(args, hub, target)
        sys.stdout.write(table(rows, args.gb) + "\n")
    finally:
        shutil.rmtree(hub, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        (args.memory / f"{target.name}.sha256").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
