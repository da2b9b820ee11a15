"""GPU memory around a server: free before it starts, free again after it has stopped; by nvidia-smi."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUERY_S = 20.0
# A driver frees the memory of a dead process within a second or two; a large one takes longer.
FREED_S = 30.0
# What an idle GPU uses differs between looks by some MiB; a context that is left takes 300 MiB and more.
SLACK_MIB = 200
# The most that a GPU without any program uses, ECC and a display included.
IDLE_MIB = 2048
_GPU_FIELDS = "index,uuid,memory.used,memory.total"
_APP_FIELDS = "gpu_uuid,pid,process_name,used_memory"


class Holder(Struct, frozen=True, kw_only=True):
    """A process that nvidia-smi sees on a GPU. In a container it may see none."""

    gpu: str
    pid: int
    name: str
    used_mib: int | None


class Memory(Struct, frozen=True, kw_only=True):
    """One look. `skipped` says why there is none: no GPU here, or no driver that answers."""

    used_mib: dict[str, int] = {}
    total_mib: dict[str, int] = {}
    uuids: dict[str, str] = {}
    holders: list[Holder] = []
    skipped: str | None = None

    def of(self, visible: str | None, count: int) -> Memory:
        """Only the GPUs that a server uses: those named in CUDA_VISIBLE_DEVICES, or the first ones.

        Others may be another container's, whose use of them is none of our business.
        """
        if self.skipped:
            return self
        named = [word.strip() for word in (visible or "").split(",") if word.strip()]
        mine = [gpu for gpu, uuid in self.uuids.items() if gpu in named or _named(uuid, named)]
        mine = mine or list(self.used_mib)[:count]
        return Memory(
            used_mib={gpu: self.used_mib[gpu] for gpu in mine},
            total_mib={gpu: self.total_mib[gpu] for gpu in mine},
            uuids={gpu: self.uuids[gpu] for gpu in mine},
            holders=[holder for holder in self.holders if holder.gpu in mine],
        )

    def above(self, limit_mib: dict[str, int]) -> dict[str, int]:
        """The GPUs that use more than they may, with how much."""
        return {gpu: used for gpu, used in self.used_mib.items() if used > limit_mib.get(gpu, IDLE_MIB)}

    def sentence(self, limit_mib: dict[str, int]) -> str:
        held = self.above(limit_mib)
        parts = [
            f"GPU {gpu} uses {used} MiB (free it is {limit_mib.get(gpu, IDLE_MIB)} MiB at most)"
            for gpu, used in held.items()
        ]
        found = [holder for holder in self.holders if holder.gpu in held]
        who = ", ".join(
            f"pid {holder.pid} ({holder.name}"
            + (f", {holder.used_mib} MiB)" if holder.used_mib is not None else ")")
            for holder in found
        )
        hidden = (
            "no process is shown here; look on the host: nvidia-smi, or fuser -v /dev/nvidia* for one that "
            "hangs in the driver"
        )
        return f"{'; '.join(parts)}: {f'held by {who}' if who else hidden}"


class GpuWatch:
    """Keeps what the GPUs used when no server of ours ran."""

    def __init__(self, command: Sequence[str] = ("nvidia-smi",), *, freed_s: float = FREED_S) -> None:
        self.command = list(command)
        self.freed_s = freed_s
        self.baseline_mib: dict[str, int] = {}

    async def require_free(self, visible: str | None, count: int) -> Memory:
        """A server's GPUs now, after waiting for them to be free for as long as that may take."""
        until = time.monotonic() + self.freed_s
        while True:
            memory = (await asyncio.to_thread(read_memory, self.command)).of(visible, count)
            if memory.skipped or not memory.above(self.limit_mib()) or time.monotonic() > until:
                break
            await asyncio.sleep(0.5)
        for gpu, used in memory.used_mib.items():
            if used <= IDLE_MIB:
                self.baseline_mib.setdefault(gpu, used)
        return memory

    def limit_mib(self) -> dict[str, int]:
        """What each GPU may use and still count as free; IDLE_MIB where it was never seen free."""
        return {gpu: used + SLACK_MIB for gpu, used in self.baseline_mib.items()}


def read_memory(command: Sequence[str]) -> Memory:
    """Never raises: where GPUs can't be asked, the reason stands in `skipped`."""
    if shutil.which(command[0]) is None:
        return Memory(skipped=f"no {command[0]} here, so no GPU to watch")
    rows = _ask(command, f"--query-gpu={_GPU_FIELDS}")
    if isinstance(rows, str):
        return Memory(skipped=rows)
    used: dict[str, int] = {}
    total: dict[str, int] = {}
    names: dict[str, str] = {}
    for row in rows:
        if len(row) == _GPU_FIELDS.count(",") + 1 and row[2].isdigit():
            names[row[1]] = row[0]
            used[row[0]] = int(row[2])
            total[row[0]] = int(row[3]) if row[3].isdigit() else 0
    if not used:
        return Memory(skipped="nvidia-smi names no GPU's memory (shared memory, or MIG)")
    apps = _ask(command, f"--query-compute-apps={_APP_FIELDS}")
    holders = [] if isinstance(apps, str) else [_holder(row, names) for row in apps if _is_app(row)]
    uuids = {index: uuid for uuid, index in names.items()}
    return Memory(used_mib=used, total_mib=total, uuids=uuids, holders=holders)


def _ask(command: Sequence[str], query: str) -> list[list[str]] | str:
    """Rows, or the sentence that says why there are none."""
    argv = [*command, query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_QUERY_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"nvidia-smi did not answer within {_QUERY_S:g} s: the driver hangs; run diagnose.yml"
    except OSError as exc:
        return f"{command[0]} can't be run: {exc.strerror}"
    text = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        # Its own words come first, on the standard output; of a program that fell over, the last line tells.
        said = text.strip().splitlines()[:1] or done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"nvidia-smi ended with {done.returncode}: {said[0] if said else 'no word'}"
    return [[part.strip() for part in line.split(",")] for line in text.splitlines() if line.strip()]


def _named(uuid: str, named: Sequence[str]) -> bool:
    """CUDA takes the beginning of a UUID too."""
    return any(word.startswith("GPU-") and uuid.startswith(word) for word in named)


def _is_app(row: Sequence[str]) -> bool:
    return len(row) >= _APP_FIELDS.count(",") + 1 and row[1].isdigit()


def _holder(row: Sequence[str], names: dict[str, str]) -> Holder:
    """A process name may hold commas: it's what stands between the pid and the memory."""
    pid, used = int(row[1]), row[-1]
    return Holder(
        gpu=names.get(row[0], row[0]),
        pid=pid,
        name=", ".join(row[2:-1]) if row[2:-1] != ["[Not Found]"] else _command(pid),
        used_mib=int(used) if used.isdigit() else None,
    )


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "gone, or of another container"
