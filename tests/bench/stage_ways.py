"""The ways to bring a model into memory that are held against each other, each as one timed command."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stage_data import MB, weights

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.sim.hub import CdnServer, HubServer, Model  # noqa: E402 - the path is set above
from tests.sim.nginx import nginx  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Iterator

REPO = "bench/random"


@dataclass(frozen=True)
class Sample:
    """One run of one way."""

    seconds: float
    cpu_s: float = 0.0
    rss_mb: float = 0.0


def run(command: list[str], **environment: str) -> Sample:
    """Time a command; the memory is the largest that the kernel has seen of the process itself."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env={**ours(), **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
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
        raise SystemExit(f"{' '.join(command)[:300]} ended with {process.returncode}")
    return Sample(seconds, usage.ru_utime + usage.ru_stime, rss_mb)


def ours() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "roles/model_stage/files")}


def _peak_mb(pid: int) -> float:
    """Not from rusage, which starts with the memory of the process that forked."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def read_only(snapshot: Path, threads: int = 2) -> Sample:
    """The limit: the same files read into nothing."""
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

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return Sample(time.perf_counter() - started, time.process_time() - cpu)


def stager(verb: str, target: Path, source: str, *more: str) -> list[str]:
    command = [sys.executable, "-m", "model_stager", verb, "--name", "random", "--repo", REPO]
    return [*command, "--root", str(target), "--source", source, *more]


class LocalWays:
    """From a cache on a disk."""

    def __init__(self, hub: Path, snapshot: Path, target: Path) -> None:
        self._hub = hub
        self._snapshot = snapshot
        self._target = target
        self.sums = hub / "sums.sha256"
        self.sums.write_text("".join(f"{digest}  {name}\n" for name, digest in weights(snapshot).items()))

    def cp(self) -> Sample:
        return run(["cp", "-rL", str(self._snapshot), str(self._target / "copy")])

    def cp_then_sha256sum(self) -> Sample:
        copy = f"{self._target}/copy"
        return run(["sh", "-c", f"cp -rL {self._snapshot} {copy} && cd {copy} && sha256sum -c {self.sums}"])

    def rclone(self) -> Sample:
        """As fast as it gets: no sums, links followed."""
        command = ["rclone", "copy", "--copy-links", "--ignore-checksum", "--config", "/dev/null"]
        return run([*command, str(self._snapshot), str(self._target / "copy")])

    def stage(self, threads: int) -> Sample:
        return run([*self.stager("stage"), "--threads", str(threads)])

    def sha256sum(self) -> Sample:
        return run(["sh", "-c", f"cd {self._target}/random && sha256sum -c {self.sums}"])

    def deep(self) -> Sample:
        return run([*self.stager("stage"), "--deep"])

    def quick(self) -> Sample:
        """The proof itself, as the stager measures it; the start of Python comes on top."""
        done = subprocess.run(self.stager("check"), env=ours(), capture_output=True, check=True)
        return Sample(json.loads(done.stdout)["seconds"])

    def stager(self, verb: str) -> list[str]:
        return stager(verb, self._target, f"hf_cache={self._hub}")


class Sized:
    """Stands for a file's content where only its length is asked for: nginx serves the bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class Weights(Model):
    """A repository whose large files lie on a disk."""

    def entry(self, name: str) -> dict[str, Any]:
        content: Any = self.files[name]
        if isinstance(content, bytes):
            return super().entry(name)
        lfs = {"oid": self.sums[name], "size": len(content), "pointerSize": 134}
        return {"type": "file", "path": name, "size": len(content), "oid": self.sums[name][:40], "lfs": lfs}

    sums: dict[str, str]


class NginxCdn(CdnServer):
    """Sends to nginx, which reads the files with sendfile."""

    place = ""

    def sign(self, name: str) -> str:
        return f"{self.place}/{name}"


class HttpWays:
    """From nginx on the loopback, and from a hub of the tests' own that redirects to it."""

    def __init__(self, snapshot: Path, target: Path, place: str, hub: str) -> None:
        self._names = sorted(path.name for path in snapshot.iterdir())
        self._sizes = {path.name: path.stat().st_size for path in snapshot.iterdir()}
        self._target = target
        self._place = place
        self._hub = hub
        self._manifest = target.parent / f"{target.name}.manifest.json"
        command = [sys.executable, "-m", "model_stager", "manifest", "create", "--from", str(snapshot)]
        command += ["--name", "random", "--output", str(self._manifest)]
        subprocess.run(command, env=ours(), check=True, capture_output=True)

    def close(self) -> None:
        self._manifest.unlink(missing_ok=True)

    def hf_download(self) -> Sample:
        program = Path(sys.executable).with_name("hf")
        cache = str(self._target / "hf-home")
        return run(
            [str(program), "download", REPO, "--local-dir", str(self._target / "copy")],
            HF_ENDPOINT=self._hub, HF_HOME=cache, HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1",
        )  # fmt: skip

    def curl(self, ranges: int = 4) -> Sample:
        """Each file by so many curls at once; the parts are left as they are, which favours it."""
        lines = [f"mkdir {self._target}/copy && cd {self._target}/copy"]
        for name in self._names:
            size = self._sizes[name]
            step = -(-size // ranges)
            for start in range(0, size, step):
                end = min(size, start + step) - 1
                lines.append(f"curl -sf -r {start}-{end} {self._place}/{name} -o {name}.{start} &")
            lines.append("wait")
        return run(["sh", "-ec", "\n".join(lines)])

    def aria2c(self) -> Sample:
        urls = self._target / "urls"
        urls.write_text("".join(f"{self._place}/{name}\n" for name in self._names))
        command = [
            "aria2c",
            "-q",
            "-x4",
            "-j4",
            "-s4",
            "--file-allocation=none",
            "--no-conf",
            "-i",
            str(urls),
        ]
        return run([*command, "-d", str(self._target / "copy")])

    def stage(self, threads: int) -> Sample:
        more = ("--threads", str(threads), "--manifest", str(self._manifest))
        return run(stager("stage", self._target, f"http={self._place}", *more))

    def stage_from_hub(self, threads: int) -> Sample:
        return run(stager("stage", self._target, f"hub={self._hub}", "--threads", str(threads)))


@contextlib.contextmanager
def servers(snapshot: Path, work: Path) -> Iterator[tuple[str, str]]:
    """URLs of the folder at nginx, and of the hub."""
    sums = weights(snapshot)
    files: dict[str, Any] = {
        path.name: Sized(path.stat().st_size) if path.name in sums else path.read_bytes()
        for path in sorted(snapshot.iterdir())
    }
    model = Weights(files, repo=REPO)
    model.sums = sums
    with nginx(snapshot, work) as place:
        hub = HubServer(model)
        hub.cdn = NginxCdn(model)
        hub.cdn.place = place
        with hub:
            yield place, hub.url


def installed(program: str) -> bool:
    return shutil.which(program) is not None or Path(sys.executable).with_name(program).exists()
