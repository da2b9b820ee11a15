"""Before a server over several GPUs starts: can they reach each other? Asked in a child with a time limit."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_runner.deployment import Deployment
    from bench_runner.server.gpus import Memory

SCRIPT = Path(__file__).with_name("nccl_check.py")
# Importing torch and making eight contexts takes a minute from a cold disk; a hang takes for ever.
LIMIT_S = 180.0
_TEXT_CHARS = 300


class PeerCheck(Struct, frozen=True, kw_only=True):
    """`outcome`: ok, skipped, failed or timed_out."""

    outcome: str
    sentence: str
    detail: dict[str, Any] = {}

    @property
    def forbids(self) -> bool:
        return self.outcome in {"failed", "timed_out"}


async def check_peers(deployment: Deployment, memory: Memory, *, limit_s: float = LIMIT_S) -> PeerCheck:
    gpus = deployment.tensor_parallelism
    if gpus <= 1:
        return _skipped("one GPU needs no other")
    if memory.skipped:
        return _skipped(memory.skipped)
    if deployment.python is None:
        return _skipped("the configuration's description names no Python of the engine")
    if not os.access(deployment.python, os.X_OK):
        return _skipped(f"{deployment.python} can't be run by this user")
    chosen = deployment.visible_gpus
    more = {"CUDA_VISIBLE_DEVICES": chosen} if chosen else {}
    return await run_check([deployment.python, str(SCRIPT), f"--gpus={gpus}"], limit_s=limit_s, more=more)


async def run_check(
    argv: Sequence[str], *, limit_s: float, more: Mapping[str, str] | None = None
) -> PeerCheck:
    """Run the child; whatever it does, this returns in time and leaves none of its processes."""
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **(more or {})},
        )
    except OSError as exc:
        return _skipped(f"{argv[0]} can't be run: {exc.strerror}")
    try:
        out, err = await asyncio.wait_for(child.communicate(), limit_s)
    except asyncio.TimeoutError:
        return PeerCheck(
            outcome="timed_out",
            sentence=f"an all-reduce over the GPUs did not end within {limit_s:g} s; on PCIe platforms it is "
            f"mostly P2P: try NCCL_P2P_DISABLE=1, or iommu=pt and ACS off on the host",
        )
    finally:
        _end_group(child.pid)
        await child.wait()
    return _read(child.returncode, out, err)


def _read(status: int | None, out: bytes, err: bytes) -> PeerCheck:
    said = _last_json(out)
    if "skipped" in said:
        return _skipped(str(said["skipped"]))
    if status == 0 and said.get("ok") is True:
        without = said.get("pairs_without_p2p") or []
        best_ms = float(said.get("best_s", 0)) * 1e3
        return PeerCheck(
            outcome="ok",
            sentence=f"an all-reduce of {said.get('mib')} MiB took {best_ms:.1f} ms; "
            f"{len(without)} of {said.get('pairs')} pairs without P2P",
            detail=said,
        )
    words = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
    why = str(said.get("failed") or (words[-1] if words else "no word"))[:_TEXT_CHARS]
    return PeerCheck(outcome="failed", sentence=f"an all-reduce over the GPUs failed (exit {status}): {why}")


def _last_json(out: bytes) -> dict[str, Any]:
    """The script's line; libraries may print before it."""
    for line in reversed(out.decode(errors="replace").splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}


def _skipped(why: str) -> PeerCheck:
    return PeerCheck(outcome="skipped", sentence=f"not checked: {why}")


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
