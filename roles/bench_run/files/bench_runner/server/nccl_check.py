"""Run by the engine's own Python, one process a GPU: does an all-reduce over NCCL end, and end right?

It hangs on some PCIe platforms, so whoever starts it must have a time limit. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

ROUNDS = 3


def worker(rank: int, gpus: int, mib: int, store: str) -> None:
    import torch  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415 - of the engine's environment
    import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl",
        init_method=f"file://{store}/rendezvous",
        rank=rank,
        world_size=gpus,
        timeout=timedelta(seconds=600),
    )
    numbers = torch.empty(mib * 2**20 // 4, dtype=torch.float32, device=f"cuda:{rank}")
    seconds = []
    for _ in range(ROUNDS):
        numbers.fill_(rank + 1.0)
        torch.cuda.synchronize()
        started = time.monotonic()
        dist.all_reduce(numbers)
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - started)
    wanted = gpus * (gpus + 1) / 2
    wrong = int((numbers != wanted).sum().item())
    if wrong:
        sys.stderr.write(f"rank {rank}: {wrong} of {numbers.numel()} sums are not {wanted:g}\n")
    if rank == 0:
        pairs = [(a, b) for a in range(gpus) for b in range(gpus) if a != b]
        without = [f"{a}-{b}" for a, b in pairs if not torch.cuda.can_device_access_peer(a, b)]
        found = {"best_s": min(seconds), "pairs": len(pairs), "pairs_without_p2p": without}
        Path(store, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()
    if wrong:
        raise SystemExit(1)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--mib", type=int, default=64)
    options = parser.parse_args()
    try:
        import torch  # noqa: PLC0415 - its absence is an answer
        import torch.multiprocessing as processes  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415
    except ImportError as exc:
        print(json.dumps({"skipped": f"the engine's Python has no torch: {exc}"}))  # noqa: T201
        return 0
    seen = torch.cuda.device_count()
    if seen < options.gpus:
        print(json.dumps({"failed": f"CUDA sees {seen} GPUs, {options.gpus} are needed"}))  # noqa: T201
        return 1
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    with tempfile.TemporaryDirectory() as store:
        try:
            processes.spawn(worker, (options.gpus, options.mib, store), nprocs=options.gpus)
        except Exception as exc:  # noqa: BLE001 - whatever a rank died of is the answer
            last = (str(exc).strip().splitlines() or [type(exc).__name__])[-1]
            print(json.dumps({"failed": last[:300]}))  # noqa: T201
            return 1
        found = json.loads(Path(store, "found.json").read_text())
    print(json.dumps({"ok": True, "mib": options.mib, **found}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
