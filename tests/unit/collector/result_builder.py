"""Builds result folders as the benchmark runner leaves them: valid by schema, every figure by a formula."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
import zstandard

if TYPE_CHECKING:
    from pathlib import Path

UNITS = {
    "code": "output_tokens",
    "context": "prompt_tokens",
    "concurrency": "clients",
    "rate": "requests_per_s",
    "replay": "speed_percent",
    "agentic": "turns",
}
COMPARABILITY = {
    "driver_version": "580.95.05",
    "cuda_version": "13.0",
    "kernel": "6.14.8-2-pve",
    "power_limit_w": [600],
    "pcie_links": None,
    "numa": None,
    "cpu_model": "AMD EPYC 9355",
}
PLAN: dict[str, Any] = {
    "schema_version": 1,
    "name": "lab-small",
    "baseline": "tp1-auto",
    "configurations": ["tp1-auto", "tp1-ngram", "tp1-draft"],
    "repeats": 1,
    "seed": 1,
    "workloads": {
        "code": {"points": [64, 128, 256], "requests": 2, "concurrency": 1, "prompt_tokens": 48},
        "context": {"points": [256, 512, 1024], "output_tokens": 16, "requests": 2},
        "concurrency": {"points": [1, 2, 4], "prompt_tokens": 64, "output_tokens": 32},
        "agentic": {"points": [4], "conversations": 1},
    },
}
SPEED = {"tp1-auto": 26.3, "tp1-ngram": 61.0, "tp1-draft": 96.5}


def canonical(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def distribution(n: int, middle: float) -> dict[str, Any]:
    return {
        "n": n,
        "mean": middle,
        "min": middle * 0.9,
        "max": middle * 1.1,
        "p50": middle,
        "p90": middle * 1.08 if n >= 10 else None,
        "p99": middle * 1.099 if n >= 100 else None,
    }


def metrics(
    configuration: str, workload: str, point: int, requests: int, factor: float = 1.0
) -> dict[str, Any]:
    each = {"code": point, "context": 16, "agentic": 24}.get(workload, 32)
    tokens = each * requests
    clients = point if workload == "concurrency" else 1
    user_tps = SPEED.get(configuration, 40.0) * factor / (1 + 0.08 * (clients - 1))
    if workload == "context":
        user_tps /= 1 + point / 4096
    total_tps = user_tps * clients
    wall_s = tokens / total_tps
    per_request_ms = wall_s * 1000 * clients / requests / 1.11
    speculative = configuration != "tp1-auto"
    steps = round(tokens / 2.4) if speculative else None
    return {
        "ttft_ms": distribution(requests, min((40.0 + point / 16) * (1 + 8 / user_tps), per_request_ms / 2)),
        "tpot_ms": distribution(requests, 1000 / user_tps),
        "chunk_gap_ms": distribution(max(1, tokens - requests), 1000 / user_tps),
        "e2e_ms": distribution(requests, per_request_ms),
        "output_tps": tokens / wall_s,
        "output_tps_per_user": user_tps,
        "prompt_tokens": 48 * requests,
        "completion_tokens": tokens,
        "wall_s": wall_s,
        "accept_length": tokens / steps if steps else None,
        "verify_steps": steps,
        "draft_tokens": steps * 4 if steps else None,
        "accepted_drafts": steps or None,
        "cached_tokens": 0 if workload != "agentic" else 24 * requests,
    }


@dataclass
class CampaignBuilder:
    """A campaign's folder that grows as the runner would grow it."""

    folder: Path
    node: str = "ct200"
    host: str = "pve"
    plan: dict[str, Any] = field(default_factory=lambda: copy.deepcopy(PLAN))
    comparability: dict[str, Any] = field(default_factory=lambda: dict(COMPARABILITY))
    run: str = "run-1"
    day: int = 14
    events: list[dict[str, Any]] = field(default_factory=list)
    clock: int = 0
    with_requests: bool = False

    @property
    def name(self) -> str:
        return self.folder.name

    def at(self) -> str:
        self.clock += 7
        minutes, second = divmod(self.clock, 60)
        hours, minute = divmod(minutes, 60)
        return f"2026-05-{self.day + hours // 24:02d}T{hours % 24:02d}:{minute:02d}:{second:02d}.000Z"

    def start(self) -> CampaignBuilder:
        (self.folder / "cells").mkdir(parents=True, exist_ok=True)
        (self.folder / "plan.yml").write_text(yaml.safe_dump(self.plan, sort_keys=False))
        self.event("run_started")
        return self

    def event(self, event: str, **fields: Any) -> None:
        entry = {
            "schema_version": 1,
            "seq": len(self.events) + 1,
            "at": self.at(),
            "boot_id": "b-1",
            "run": self.run,
            "event": event,
            **fields,
        }
        self.events.append(entry)
        with (self.folder / "journal.jsonl").open("ab") as journal:
            journal.write(msgspec.json.encode(entry) + b"\n")

    def planned(self) -> list[tuple[str, str, int, int]]:
        return [
            (configuration, workload, point, repeat)
            for configuration in self.plan["configurations"]
            for repeat in range(1, self.plan["repeats"] + 1)
            for workload, shape in self.plan["workloads"].items()
            for point in shape["points"]
        ]

    def cell(  # noqa: PLR0913 - a cell has these parts
        self,
        configuration: str,
        workload: str,
        point: int,
        repeat: int = 1,
        *,
        status: str = "ok",
        code: str = "server_died",
        detail: str = "CUDA error: an illegal instruction was encountered",
        attempt: int = 1,
        factor: float = 1.0,
        requests: int | None = None,
        build: str = "b1",
        **changes: Any,
    ) -> dict[str, Any]:
        """The content of a cell file, not written."""
        ok = status == "ok"
        planned = requests or (
            point * 2 if workload == "concurrency" else point if workload == "agentic" else 2
        )
        identity = {
            "engine": "llama.cpp",
            "engine_build": build,
            "model": "tiny",
            "model_digest": "ab" * 32,
            "tensor_parallelism": 1,
            "context_tokens": 4096,
            "flags": {"configuration": configuration},
            "workload": {"kind": workload, "version": 1},
            "gpu_model": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "gpu_count": 8,
        }
        hashed = {"identity": identity, "workload": workload, "point": point, "repeat": repeat}
        return {
            "schema": "recover-and-bench/cell",
            "schema_version": 1,
            "campaign": self.name,
            "node": self.node,
            "host": self.host,
            "cell": f"{configuration}.{workload}.{point}.r{repeat}",
            "configuration": configuration,
            "baseline": configuration == self.plan["baseline"],
            "workload": workload,
            "point": point,
            "point_unit": UNITS[workload],
            "repeat": repeat,
            "attempt": attempt,
            "status": status,
            "reasons": [] if ok else [{"code": code, "detail": detail}],
            "started_at": self.at(),
            "ended_at": self.at(),
            "duration_s": 7.0,
            "content_hash": hashlib.sha256(canonical(hashed)).hexdigest(),
            "fingerprint": {
                "identity": identity,
                "comparability": copy.deepcopy(self.comparability),
                "recorded": {"boot_id": "b-1", "uptime_s": 812.5},
            },
            "requests": {"planned": planned, "ok": planned if ok else 0, "failed": 0 if ok else planned},
            "checks": [{"name": "tokens_conserved", "passed": True, "detail": "usage equals the stream"}],
            "metrics": metrics(configuration, workload, point, planned, factor) if ok else None,
            "files": {},
            "evidence": None if ok else {"Result": "core-dump", "signature": code},
            **changes,
        }

    def write(self, content: dict[str, Any]) -> Path:
        """Write a cell as the runner does: companion, cell, journal."""
        name = content["cell"]
        path = self.folder / "cells" / f"{name}.json"
        self.event("cell_started", cell=name, content_hash=content["content_hash"])
        if self.with_requests and content["status"] == "ok":
            content = {**content, "files": {"requests": self._requests(content)}}
        data = json.dumps(content, indent=1).encode() + b"\n"
        path.write_bytes(data)
        self.event(
            "cell_ended",
            cell=name,
            content_hash=content["content_hash"],
            status=content["status"],
            reasons=content["reasons"],
            file=f"cells/{name}.json",
            sha256=hashlib.sha256(data).hexdigest(),
        )
        return path

    def _requests(self, content: dict[str, Any]) -> dict[str, Any]:
        count = content["requests"]["planned"]
        lines = b"".join(
            msgspec.json.encode(
                {
                    "index": index,
                    "conversation": index,
                    "turn": 0,
                    "ok": True,
                    "sent_ms": 10.0 * index,
                    "first_ms": 10.0 * index + 40,
                    "last_ms": 10.0 * index + 400,
                    "completion_tokens": content["metrics"]["completion_tokens"] // count,
                }
            )
            + b"\n"
            for index in range(count)
        )
        data = zstandard.ZstdCompressor(level=3).compress(lines)
        name = f"{content['cell']}.requests.jsonl.zst"
        (self.folder / "cells" / name).write_bytes(data)
        return {"name": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def skip(self, configuration: str, workload: str, point: int, *, code: str, detail: str) -> None:
        self.write(self.cell(configuration, workload, point, status="skipped", code=code, detail=detail))

    def run_all(self, **special: dict[str, Any]) -> CampaignBuilder:
        """Every planned cell, ok but for those named with underscores: tp1_draft__code__64={...}."""
        for configuration, workload, point, repeat in self.planned():
            key = f"{configuration}__{workload}__{point}".replace("-", "_")
            self.write(self.cell(configuration, workload, point, repeat, **special.get(key, {})))
        return self.finish()

    def status(
        self, state: str = "finished", *, current: dict[str, Any] | None = None, message: str = ""
    ) -> None:
        ended = {event["cell"]: event for event in self.events if event["event"] == "cell_ended"}
        todos = []
        counts: dict[str, int] = {}
        for configuration, workload, point, repeat in self.planned():
            cell = f"{configuration}.{workload}.{point}.r{repeat}"
            word = ended[cell]["status"] if cell in ended else "pending"
            counts[word] = counts.get(word, 0) + 1
            todo = {"ok": "completed", "skipped": "skipped", "pending": "pending", "interrupted": "pending"}
            reasons = ended[cell]["reasons"] if cell in ended else []
            todos.append(
                {
                    "content": f"{configuration} {workload}/{point}",
                    "priority": "medium",
                    "status": todo.get(word, "failed"),
                    "cell": cell,
                    "reason": reasons[0]["detail"] if reasons else "",
                }
            )
        content = {
            "schema": "recover-and-bench/status",
            "schema_version": 1,
            "campaign": self.name,
            "node": self.node,
            "state": state,
            "updated_at": self.at(),
            "run": self.run,
            "message": message,
            "current": current,
            "counts": counts,
            "kept": 0,
            "todos": todos,
        }
        (self.folder / "status.json").write_text(json.dumps(content, indent=1))
        (self.folder / "STATUS.md").write_text(f"# {self.name}: {state}\n")

    def finish(self) -> CampaignBuilder:
        self.event("run_ended")
        self.status("finished", message="all cells have their final status")
        return self
